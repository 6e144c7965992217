"""What a row of very many neighbours costs the batches that it is in."""

import torch
from torch import Tensor

from benchmarks.results import Record
from benchmarks.speed.device.timing import cuda, device_seconds
from benchmarks.speed.shown import Claim, Shown, short
from fastgcn.backends.gpu.matrix import DeviceMatrix
from fastgcn.backends.gpu.sampler import DeviceSampler
from fastgcn.backends.gpu.steps import Recording
from fastgcn.report.page import Table


def measure_hub(*, nodes: int, degree: int, hub: int, rounds: int) -> Record:
    """Seconds a batch of draws and blocks, 64 batches of 256 rows with t = 400 together.

    A random graph of `degree` entries a row, in which node 0 has `hub`: batches without it, and
    batches that all have it.
    """
    device = cuda()
    rng = torch.Generator(device).manual_seed(0)
    lengths = torch.full((nodes,), degree, device=device)
    lengths[0] = hub
    indptr = torch.zeros(nodes + 1, dtype=torch.int64, device=device)
    indptr[1:] = lengths.cumsum(0)
    count = int(indptr[-1])
    columns = torch.randint(nodes, (count,), device=device, generator=rng, dtype=torch.int32)
    row = torch.repeat_interleave(torch.arange(nodes, device=device), lengths).int()
    values = torch.full((count,), 1 / degree, device=device)
    matrix = DeviceMatrix(indptr, columns, values, row)
    sampler = DeviceSampler(matrix, [400], size=256, count=64, seed=0)
    steps = torch.zeros(1, dtype=torch.int64, device=device)
    plain = torch.randint(1, nodes, (64, 256), device=device, generator=rng, dtype=torch.int32)
    with_hub = plain.clone()
    with_hub[:, 0] = 0

    def seconds(rows: Tensor) -> float:
        def work() -> None:
            sampler.sample(rows, steps)

        return device_seconds(Recording(work, device, []).play, rounds) / len(rows)

    entries = 256 * degree
    return {
        "plain": seconds(plain),
        "hub": seconds(with_hub),
        "entries": {"plain": entries, "hub": entries - degree + hub},
    }


def show_hub(records: dict[str, Record]) -> Shown:
    (found,) = records.values()
    entries = found["entries"]
    rows = [
        (name, f"{entries[key]:,}", short(1e6 * found[key]))
        for name, key in (("without", "plain"), ("with the hub in every batch", "hub"))
    ]
    more = (found["hub"] / found["plain"]) / (entries["hub"] / entries["plain"])
    claims = [Claim(what="time an entry, with the hub / without", value=more, at_most=1.1)]
    head = ("batches", "entries looked at", "draws and block, µs a batch")
    return Shown(claims, [Table(head, rows, "A hub among the rows of a batch")])
