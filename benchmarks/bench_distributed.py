"""How training scales over processes: throughput, bytes on the wire, memory of each.

Each measurement starts torchrun's launcher with K ranks of one thread each; ranks time steps of
the run's own trainer, and say what they sent and what memory they took. A result is a line of
`results/scale.jsonl`; what is there is not measured again.

    python benchmarks/bench_distributed.py speed --data reddit-sim
    python benchmarks/bench_distributed.py memory --data reddit-sim

`speed` compares 2 ranks with 1, at settings where arithmetic is what a step takes (batch 4,096,
t = 8,192, hidden 512): the network and sampler of the best settings, and the paper's, for which
one process has a compiled step. It counts bytes: what the ranks say they sent, what the formula
says, and what the network interface that carries them saw. `memory` is the resident peak of a
rank that trains an epoch and validates, for K = 1, 2 and 4, less that of the same process having
trained on a tiny graph.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results import Results
from fastgcn.config import TrainConfig

COMPUTE_BOUND = TrainConfig(
    hidden=512, samples=8192, batch_size=4096, learning_rate=0.001, threads=1, device="cpu"
)
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
PAPER = TrainConfig(samples=400, batch_size=256, validate_every=1, threads=1, device="cpu")
_STATUS = Path("/proc/self/status")
_TRAFFIC = Path("/proc/net/dev")


def launch(ranks: int, *arguments: object) -> dict[str, Any]:
    """What the first of so many ranks prints, each on a core of its own where there are enough."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(ranks), __file__, "rank", *map(str, arguments),
    ]  # fmt: skip
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak_bytes() -> int:
    """VmHWM: the most resident memory that this process had."""
    (line,) = (x for x in _STATUS.read_text("ascii").splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def carried_bytes() -> int:
    """What the loopback interface has carried since the machine started."""
    (line,) = (x for x in _TRAFFIC.read_text("ascii").splitlines() if x.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def rank(kind: str, data: str, steps: int) -> None:
    """One rank: trains so many steps, and the first prints what all took."""
    from fastgcn.backends.cpu import CpuBackend
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

    def trainer(name: str) -> CpuBackend:
        graph = load(name)
        # Of one rank, speed is that of one process: what its users run.
        alone = group.size == 1 and kind in SPEED
        if alone:
            backend = CpuBackend(graph, config)
        else:
            backend = RanksBackend(Shard.of_graph(graph, group), config)
        backend.prepare()
        return backend

    found: dict[str, Any] = {"ranks": group.size}
    with thread_count(1):
        if kind in SPEED:
            found |= _timed(group, trainer(data), steps)
        else:
            trainer("digits").train_epoch(0)  # to load everything
            before = peak_bytes()
            backend = trainer(data)
            backend.train_epoch(0)
            scores = backend.evaluate("val")
            found |= {"val_micro_f1": scores.micro_f1 if scores else None}
            found["peaks"] = group.host_comm.gather_counts(peak_bytes() - before, "peaks")
    if group.is_main:
        print(json.dumps(found), flush=True)
    group.close()


def _timed(group: Any, trainer: Any, steps: int) -> dict[str, Any]:
    """Seconds of each step, sampling included, and the bytes of all of them."""
    batches = iter(trainer.minibatches.shuffled())
    trainer.train_on([next(batches)])
    sent, carried = group.host_comm.sent + group.step_comm.sent, carried_bytes()
    formula, seconds = 0, []
    for _ in range(steps):
        start = time.perf_counter()
        (parcel,) = trainer.minibatches.groups([next(batches)])
        parcel.steps(trainer.step)
        seconds.append(time.perf_counter() - start)
        formula += _formula(group, trainer, parcel)
    sent = group.host_comm.sent + group.step_comm.sent - sent
    carried = carried_bytes() - carried
    total = sum(group.host_comm.gather_counts(sent, "bytes"))
    return {
        "seconds": seconds,
        "sent_bytes": total / steps,
        "carried_bytes": carried / steps,
        "formula_bytes": formula / steps,
    }


def _formula(group: Any, trainer: Any, parcel: Any) -> int:
    from fastgcn.backends.ranks.collectives import SampledLayer, step_bytes

    if group.size == 1:
        return 0
    parameters = sum(p.numel() for p in trainer.model.parameters())
    (block,) = parcel.blocks
    (t,) = trainer.config.layer_samples
    layer = trainer.model.convolutions[1]
    width = layer.weight.shape[0 if layer.mix_first(block) else 1]
    above = block.whole[0] if trainer.config.distribution == "ladies" else 0
    travels = SampledLayer(t, sum(block.counts), width, above=above)
    return step_bytes(group.size, [travels], parameters)


def speed(data: str, name: str, steps: int, rounds: int) -> dict[str, Any]:
    """Rounds of one rank and of two, in turns."""
    runs: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for _ in range(rounds):
        for ranks, found in runs.items():
            found.append(launch(ranks, name, data, steps))
    medians = {
        ranks: statistics.median(second for run in found for second in run["seconds"])
        for ranks, found in runs.items()
    }
    counted = ("sent_bytes", "formula_bytes", "carried_bytes")
    return {
        "median_seconds": medians,
        "speedup": medians[1] / medians[2],
        **{count: runs[2][-1][count] for count in counted},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Training over several processes.")
    parser.add_argument("what", choices=["speed", "memory", "rank"])
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--data", default="reddit-sim")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/scale.jsonl"))
    options = parser.parse_args()
    if options.what == "rank":
        kind, data, steps = options.rest
        rank(kind, data, int(steps))
        return
    results, data = Results(options.out), options.data
    if options.what == "speed":
        for name, config in SPEED.items():
            key = {"figure": f"speed of two ranks, {name}", "data": data}
            how = partial(speed, data, name, options.steps, options.rounds)
            print(key, results.measure(key | {"config": config.to_dict()}, how))
    else:
        for ranks in (1, 2, 4):
            key = {"figure": f"memory of a rank, K = {ranks}", "data": data}
            how = partial(launch, ranks, "memory", data, 0)
            print(key, results.measure(key | {"config": PAPER.to_dict()}, how))


if __name__ == "__main__":
    main()
