"""The time of a step against the number of nodes, the mean degree, and the sample size t."""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from benchmarks.results import Record
from benchmarks.speed.graphsage import steps
from benchmarks.speed.shown import Claim, Shown, milliseconds
from benchmarks.speed.turns import medians, seconds_in_turns
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.config import TrainConfig
from fastgcn.data.generate import GenerateConfig, generate
from fastgcn.data.store import open_store
from fastgcn.machine import thread_count
from fastgcn.report.page import Figure, Table
from fastgcn.report.plots import Series, lines
from fastgcn.train.presets import paper_reddit

CURVES = ("nodes", "degree", "samples")
LABELS = {"nodes": "nodes n", "degree": "mean degree", "samples": "vertices drawn t"}

_FEATURES, _CLASSES = 32, 10
_TOP_DEGREE = 1_000  # for every n: the shape of the graph must not change with its size
_VARIANTS = {"ÂX precomputed": True, "both layers sampled": False}


def measure_curve(
    *,
    curve: str,
    values: Sequence[int],
    nodes: int,
    degree: int,
    samples: int,
    rounds: int,
    chunk_seconds: float,
) -> Record:
    """Seconds a step on generated graphs while one of `nodes`, `degree`, `samples` varies.

    The graphs have 32 features, 10 classes, degrees up to 1,000 by a power law, and train with all
    nodes; batch 256 and hidden 128 are the paper's for Reddit. With ÂX precomputed one layer
    is sampled, without it two. All values of the curve take turns.
    """
    points = [{"nodes": nodes, "degree": degree, "samples": samples, curve: v} for v in values]
    timed = partial(seconds_in_turns, rounds=rounds, chunk_seconds=chunk_seconds)
    with tempfile.TemporaryDirectory() as folder, thread_count(0):
        # One variant after the other, for both at once would need the memory of both.
        return {
            name: medians(
                timed(
                    {str(p[curve]): steps(_trainer(Path(folder), p, precompute)) for p in points},
                    what=f"Steps over {LABELS[curve]}, {name}",
                )
            )
            for name, precompute in _VARIANTS.items()
        }


def _store(folder: Path, point: Mapping[str, int]) -> Path:
    """The store of a point's graph, made where it is not there."""
    n, degree = point["nodes"], point["degree"]
    store = folder / f"{n}-{degree}"
    if not store.exists():
        config = GenerateConfig(
            nodes=n,
            edges=n * degree // 2,
            features=_FEATURES,
            classes=_CLASSES,
            train=n,
            val=0,
            test=0,
            max_degree=min(_TOP_DEGREE, n // 10),
        )
        generate(config, store)
    return store


def _trainer(folder: Path, point: Mapping[str, int], precompute: bool) -> CpuBackend:
    graph = open_store(_store(folder, point))
    # Not inductive: the training nodes are all there are, and nothing needs to be cut out.
    config: TrainConfig = paper_reddit().replace(
        samples=point["samples"], precompute=precompute, inductive=False
    )
    return ready(graph, config)


def growth(seconds: Mapping[str, float]) -> float:
    """The largest ratio of the times at two values that follow each other.

    >>> growth({"10": 1.0, "100": 1.5, "1000": 1.2})
    1.5
    """
    return max(later / earlier for earlier, later in pairwise(seconds.values()))


def show_scaling(records: dict[str, Record]) -> Shown:
    claims: list[Claim] = []
    tables, pictures = [], {}
    for curve, found in records.items():
        for name, seconds in found.items():
            claims += _claims(curve, name, seconds)
        tables.append(_table(curve, found))
        pictures[f"speed_{curve}"] = _picture(curve, found)
    return Shown(claims, tables, pictures)


def _claims(curve: str, name: str, seconds: Mapping[str, float]) -> list[Claim]:
    if curve == "nodes":
        what = f"10 times more nodes, largest growth, {name}"
        return [Claim(what=what, value=growth(seconds), at_most=1.2)]
    if curve == "samples":
        what = f"twice the t, largest growth, {name}"
        return [Claim(what=what, value=growth(seconds), at_most=2.0)]
    return []


def _table(curve: str, found: Record) -> Table:
    values = list(next(iter(found.values())))
    rows = [
        (f"{int(value):,}", *(milliseconds(seconds[value]) for seconds in found.values()))
        for value in values
    ]
    return Table((LABELS[curve], *found), rows, f"ms a step over {LABELS[curve]}")


def _picture(curve: str, found: Record) -> Figure:
    title = f"Time of a step over {LABELS[curve]}"
    series = [
        Series(name, [int(value) for value in seconds], [1000 * s for s in seconds.values()])
        for name, seconds in found.items()
    ]
    svg = lines(
        series,
        title=title,
        description="; ".join(
            f"{name}: {milliseconds(min(seconds.values()))} to "
            f"{milliseconds(max(seconds.values()))} ms"
            for name, seconds in found.items()
        ),
        x_label=LABELS[curve],
        y_label="ms a step",
        x_log=True,
        y_log=True,
    )
    return Figure(svg, title)
