"""Table 1: the data sets."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

from benchmarks.paper.graphs import graph
from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.published import STATISTICS
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.paper.tables import DASH, listed, ratio
from benchmarks.results import Record
from fastgcn.report.page import Section, Table

_NAMES = {"train": "training", "val": "validation"}


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:  # noqa: ARG001
    """The counts of each graph."""
    for data in scale.data:
        yield Measurement(f"{data.label}: statistics", _key(data), partial(_count, data))


def _key(data: DataSet) -> Record:
    return {"experiment": "statistics", "data": data.name, "split": data.split}


def _count(data: DataSet) -> Record:
    loaded = graph(data.name, data.split)
    return {
        "nodes": loaded.n_nodes,
        "edges": loaded.n_edges,
        "classes": loaded.n_classes,
        "features": loaded.n_features,
        **{part: len(nodes) for part, nodes in loaded.split.items()},
        "cleaned": asdict(loaded.cleaned),
    }


def present(scale: Scale, kept: Kept) -> Section:
    """Our counts beside the paper's."""
    rows: list[tuple[str, ...]] = []
    same = known = 0
    remarks = []
    for data in scale.data:
        found = kept.get(_key(data)) or {}
        for name, theirs in STATISTICS[data.paper].items():
            ours = found.get(name)
            known += ours is not None
            same += ours == theirs
            rows.append(
                (
                    f"{data.label}: {_NAMES.get(name, name)}",
                    DASH if ours is None else f"{ours:,}",
                    f"{theirs:,}" if data.from_paper else f"{theirs:,} on {data.paper}",
                    ratio(ours, theirs),
                )
            )
        removed = {name: k for name, k in found.get("cleaned", {}).items() if k}
        if removed:
            what = listed([f"{k:,} {name.replace('_', ' ')}" for name, k in removed.items()])
            before = found["edges"] + sum(removed.values()) // 2
            remarks.append(
                f"Reading {data.label} removed {what} from its list, which has both directions "
                f"of an edge; with them it has {before:,} edges."
            )
    shown = f"{same} of {known} counts are those of the paper. " + " ".join(remarks)
    return Section(
        "datasets",
        "Data sets (Table 1)",
        "Are these the graphs that the paper measured?",
        [
            Table(("", "here", "the paper", "ratio"), rows, "Table 1: data set statistics"),
            shown,
            "Counted on the loaded graphs; an undirected edge counts once.",
            *(_stand_in(data) for data in scale.data if not data.from_paper),
        ],
    )


def _stand_in(data: DataSet) -> str:
    return (
        f"{data.label} is a generated graph that stands in for {data.paper}: figures on it are "
        f"comparable among the systems measured here, and with the paper's on {data.paper} only "
        "in their order."
    )
