"""Training over many processes: each owns a range of nodes, and rows travel between them.

`fastgcn.trainer` stays the only trainer. It takes what depends on where the graph lies (data,
sampler, batches, step, scores) from a `Team` here, or from `fastgcn.workshop` where one process
has all.
"""
