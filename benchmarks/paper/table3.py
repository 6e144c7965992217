"""Table 3: time a batch, in figures."""

from collections.abc import Iterator
from functools import partial

from benchmarks.paper.figure3 import seconds_a_batch
from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.published import BATCH_SECONDS, NEW_GRAPHSAGE_SECONDS
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.paper.systems import batch_times
from benchmarks.paper.tables import against_paper, listed, significant
from fastgcn.report.page import Section

# A row's name, our system, and the paper's figures: its GraphSAGE was measured twice.
_ROWS = {
    "FastGCN": ("fastgcn", BATCH_SECONDS["fastgcn"]),
    "GraphSAGE-GCN, old program": ("graphsage-gcn", BATCH_SECONDS["graphsage-gcn"]),
    "GraphSAGE-GCN, new program": ("graphsage-gcn", NEW_GRAPHSAGE_SECONDS),
    "GraphSAGE-mean": ("graphsage-mean", {}),
    "GCN (batched)": ("gcn-batched", BATCH_SECONDS["gcn-batched"]),
    "GCN (original)": ("gcn", {}),
}


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:  # noqa: ARG001
    """Times of all systems, in turns."""
    for data in scale.data:
        yield batch_times(data, scale)


def present(scale: Scale, kept: Kept) -> Section:
    """Seconds a batch, and how many times FastGCN's that is."""
    seconds = {data.label: seconds_a_batch(data, scale, kept) for data in scale.data}

    def time(name: str, data: DataSet) -> tuple[float | None, str, float | None]:
        system, theirs = _ROWS[name]
        ours = seconds[data.label].get(system)
        return ours, significant(ours), theirs.get(data.paper)

    def times_fastgcn(name: str, data: DataSet) -> tuple[float | None, str, float | None]:
        ours, _, theirs = time(name, data)
        fast, _, their_fast = time("FastGCN", data)
        mine = ours / fast if ours and fast else None
        paper = theirs / their_fast if theirs and their_fast else None
        return mine, significant(mine), paper

    chunks = f"{scale.rounds} chunks of batches of about {scale.chunk_seconds:g} s"
    others = [name for name in _ROWS if name != "FastGCN"]
    return Section(
        "table3",
        "Time a batch (Table 3)",
        "How long does a training step take, and how many of FastGCN's steps is that?",
        [
            against_paper(
                {name: partial(time, name) for name in _ROWS},
                scale.data,
                caption="Seconds a batch; ratio is ours to the paper's",
            ),
            against_paper(
                {name: partial(times_fastgcn, name) for name in others},
                scale.data,
                caption="Time a batch in multiples of FastGCN's; ratio is ours to the paper's",
            ),
            *_finding(scale, seconds),
            f"Medians over {chunks} each, at least three batches, after a warm-up that also "
            "compiles kernels. The systems take turns, chunk by chunk, so that what else runs on "
            "the machine meets all of them. A time is that of sampling, reading rows, the step "
            "and all between them, on all cores; evaluation and the precomputation of ÂX are not "
            "in it. A step of the original GCN takes all nodes. The paper used four cores at 2.5 "
            "GHz and TensorFlow, and measured a second, new program of GraphSAGE in PyTorch; ours "
            "stands beside both.",
        ],
    )


def _finding(scale: Scale, seconds: dict[str, dict[str, float]]) -> list[str]:
    found = []
    for data in scale.data:
        times = seconds[data.label]
        sage = [t for system, t in times.items() if system.startswith("graphsage")]
        if sage:
            found.append(f"{significant(min(sage) / times['fastgcn'])} times on {data.label}")
    if not found:
        return []
    return [f"The faster GraphSAGE takes FastGCN's time {listed(found)}."]
