"""Training over many processes: each owns a range of nodes, and rows travel between them.

`fastgcn.train.loop` stays the only trainer. It takes what depends on where the graph lies (data,
sampler, batches, step, scores) from a `Team`
here, or from `fastgcn.backends.base` where one process has all.
"""
