"""Training over many processes: each rank owns a range of nodes and their rows of Â and ÂX.

`RanksBackend` is the CPU's backend on a rank's `Shard`. All ranks draw the same batches and the
same vertices from the same generator, so a run equals that of one process up to rounding.
"""
