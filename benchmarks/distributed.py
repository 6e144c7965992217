"""How training scales over processes: throughput, bytes on the wire, memory of each.

Each measurement starts torchrun's launcher with K ranks of one thread each; ranks time steps of
the run's own trainer, and say what they sent and what memory they took.

`speed` compares 2 ranks with 1, at settings where arithmetic is what a step takes (batch 4,096,
t = 8,192, hidden 512): the network and sampler of the best settings, and the paper's, for which
one process has a compiled step. It counts bytes: what the ranks say they sent, what the formula
says, and what the network interface that carries them saw. `memory` is the resident peak of a
rank that trains an epoch and validates, for K = 1, 2 and 4, less that of the same process having
trained on a tiny graph.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.pages import Experiment, from_records, short
from benchmarks.processes import status_bytes
from benchmarks.results import CPU_CODE, Measurement, Record
from fastgcn.config import TrainConfig
from fastgcn.report.page import Table

COMPUTE_BOUND = TrainConfig(
    hidden=512, samples=8192, batch_size=4096, learning_rate=0.001, threads=1, device="cpu"
).complete()
SPEED = {
    "best": COMPUTE_BOUND.replace(
        distribution="ladies",
        draws="stratified",
        self_term="exact",
        bias=True,
        norm="layer",
        skip=True,
        input_skip=True,
        dropout=(0.2, 0.5),
    ),
    "paper": COMPUTE_BOUND,
}
PAPER = TrainConfig(
    samples=400, batch_size=256, validate_every=1, threads=1, device="cpu"
).complete()
_CODE = tuple(name for name in CPU_CODE if name != "-fastgcn.backends.ranks")
_TRAFFIC = Path("/proc/net/dev")


def experiments(data: str, steps: int, rounds: int) -> list[Experiment]:
    """Speed of two ranks, and memory of a rank."""

    def measurement(what: str, config: TrainConfig, how: Callable[[], Record]) -> Measurement:
        key = {"figure": what, "data": data, "config": config.to_dict()}
        return Measurement(what[0].upper() + what[1:], key, how, _CODE)

    speeds = {
        name: measurement(
            f"speed of two ranks, {name}", config, partial(measure_speed, data, name, steps, rounds)
        )
        for name, config in SPEED.items()
    }
    memories = {
        str(ranks): measurement(
            f"memory of a rank, K = {ranks}", PAPER, partial(launch, ranks, "memory", data, 0)
        )
        for ranks in (1, 2, 4)
    }

    def show_speed(found: dict[str, Record]) -> list[Table]:
        rows = [
            (name, *(short(1e3 * each["median_seconds"][k]) for k in "12"), short(each["speedup"]),
             *(short(each[kind] / 1e6) for kind in _COUNTED))
            for name, each in found.items()
        ]  # fmt: skip
        head = (
            "network and sampler", "1 rank, ms a step", "2 ranks", "times", "MB sent",
            "by the formula", "seen by the interface",
        )  # fmt: skip
        return [Table(head, rows, f"Steps of one and of two ranks on {data}")]

    def show_memory(found: dict[str, Record]) -> list[Table]:
        peaks = {k: [f"{n / 1e6:,.0f}" for n in each["peaks"]] for k, each in found.items()}
        rows = [(k, ", ".join(each)) for k, each in peaks.items()]
        return [Table(("ranks", "MB of each"), rows, f"Memory on {data}")]

    return [
        from_records("speed", "Speed", speeds, show_speed),
        from_records("memory", "Memory", memories, show_memory),
    ]


_COUNTED = ("sent_bytes", "formula_bytes", "carried_bytes")


def launch(ranks: int, kind: str, data: str, steps: int) -> Record:
    """What the first of so many ranks prints, each on a core of its own where there are enough."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(ranks), "-m", "benchmarks.distributed", kind, data, str(steps),
    ]  # fmt: skip
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
    found: Record = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_speed(data: str, name: str, steps: int, rounds: int) -> Record:
    """Rounds of one rank and of two, in turns."""
    runs: dict[int, list[Record]] = {1: [], 2: []}
    for _ in range(rounds):
        for ranks, found in runs.items():
            found.append(launch(ranks, name, data, steps))
    medians = {
        str(ranks): statistics.median(second for run in found for second in run["seconds"])
        for ranks, found in runs.items()
    }
    counted = {count: runs[2][-1][count] for count in _COUNTED}
    return {"median_seconds": medians, "speedup": medians["1"] / medians["2"], **counted}


def rank(kind: str, data: str, steps: int) -> None:
    """One rank: trains so many steps, and the first prints what all took."""
    from fastgcn.backends.cpu import CpuBackend, ready
    from fastgcn.backends.ranks.backend import RanksBackend
    from fastgcn.backends.ranks.process_group import ProcessGroup
    from fastgcn.backends.ranks.shard import Shard
    from fastgcn.data.load import load
    from fastgcn.machine import thread_count

    group = ProcessGroup.join()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if group.size <= len(cores):
            os.sched_setaffinity(0, {cores[group.rank]})
    config = SPEED.get(kind, PAPER)

    def prepared(name: str) -> CpuBackend:
        graph = load(name)
        if group.size == 1 and kind in SPEED:  # the speed of one process: what its users run
            return ready(graph, config)
        backend = RanksBackend(Shard.of_graph(graph, group), config)
        backend.prepare()
        return backend

    found: Record = {"ranks": group.size}
    with thread_count(1):
        if kind in SPEED:
            found |= _timed(group, prepared(data), steps)
        else:
            prepared("digits").train_epoch(0)  # to load everything
            before = status_bytes("VmHWM")
            backend = prepared(data)
            backend.train_epoch(0)
            scores = backend.evaluate("val")
            found |= {"val_micro_f1": scores.micro_f1 if scores else None}
            peak = status_bytes("VmHWM") - before
            found["peaks"] = group.host_comm.gather_counts(peak, "peaks")
    if group.is_main:
        print(json.dumps(found), flush=True)
    group.close()


def _carried_bytes() -> int:
    """What the loopback interface has carried since the machine started."""
    lines = _TRAFFIC.read_text(encoding="ascii").splitlines()
    (line,) = (each for each in lines if each.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def _timed(group: Any, backend: Any, steps: int) -> Record:
    """Seconds of each step, sampling included, and the bytes of all of them."""
    batches = iter(backend.minibatches.shuffled())
    backend.train_on([next(batches)])
    sent, carried = group.host_comm.sent + group.step_comm.sent, _carried_bytes()
    formula, seconds = 0, []
    for _ in range(steps):
        start = time.perf_counter()
        (batch,) = backend.minibatches.groups([next(batches)])
        batch.steps(backend.step)
        seconds.append(time.perf_counter() - start)
        formula += _formula(group, backend, batch)
    sent = group.host_comm.sent + group.step_comm.sent - sent
    carried = _carried_bytes() - carried
    total = sum(group.host_comm.gather_counts(sent, "bytes"))
    bytes_a_step = (count / steps for count in (total, formula, carried))
    return {"seconds": seconds, **dict(zip(_COUNTED, bytes_a_step, strict=True))}


def _formula(group: Any, backend: Any, batch: Any) -> int:
    from fastgcn.backends.ranks.collectives import LayerTraffic, step_bytes

    if group.size == 1:
        return 0
    parameters = sum(p.numel() for p in backend.model.parameters())
    (block,) = batch.blocks
    (t,) = backend.config.layer_samples
    layer = backend.model.convolutions[1]
    width = layer.weight.shape[0 if layer.mix_first(block) else 1]
    above = block.whole[0] if backend.config.distribution == "ladies" else 0
    sampled = LayerTraffic(t, sum(block.counts), width, above=above)
    return step_bytes(group.size, [sampled], parameters)


if __name__ == "__main__":
    rank(sys.argv[1], sys.argv[2], int(sys.argv[3]))
