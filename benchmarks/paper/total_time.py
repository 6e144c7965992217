"""Appendix C: total training time."""

from collections.abc import Iterator

from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.published import SYSTEMS, TOTAL_SECONDS
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.paper.systems import comparison
from benchmarks.paper.tables import beside, mean, ratio, significant
from benchmarks.results import Record
from fastgcn.report.page import Section, Table


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:
    """The trainings of every system, to their end."""
    for data in scale.data:
        for case in comparison(data).values():
            yield from case.plan(kept)


def training_seconds(run: Record) -> float:
    """From the first batch to the last, and the precomputation before them."""
    return float(run["training_seconds"] + run["precompute_seconds"])


def all_seconds(run: Record) -> float:
    return training_seconds(run) + float(run["evaluation_seconds"])


def present(scale: Scale, kept: Kept) -> Section:
    """Seconds to the stop, without evaluation and with it."""
    rows = [
        _row(system, data, kept)
        for data in scale.data
        for system in SYSTEMS
    ]  # fmt: skip
    head = ("", "training", "with evaluation", "the paper", "ratio", "epochs", "seeds")
    return Section(
        "total-time",
        "Total training time (appendix C)",
        "How long does training take in all, when every system stops by the same rule?",
        [
            Table(head, rows, "Seconds of training in all; ratio is training / the paper"),
            *_findings(scale, kept),
            "Means over seeds of the trainings of Figure 3; training is ÂX, where it is "
            "precomputed, and all batches, and evaluation is on the validation part after every "
            "epoch. The paper does not say whether its times have evaluation in them. Each "
            f"training ends after {scale.small.config.patience} epochs without a better "
            f"validation score, or at its limit of epochs{_limits(scale)}.",
        ],
    )


def _runs(system: str, data: DataSet, kept: Kept) -> list[Record]:
    case = comparison(data).get(system)
    return case.scores(kept, timed=True) if case else []


def _row(system: str, data: DataSet, kept: Kept) -> tuple[str, ...]:
    runs = _runs(system, data, kept)
    ours = mean([training_seconds(run) for run in runs])
    theirs = TOTAL_SECONDS.get(system, {}).get(data.paper)
    return (
        f"{data.label}: {SYSTEMS[system]}",
        significant(ours),
        significant(mean([all_seconds(run) for run in runs])),
        beside(theirs, data),
        ratio(ours, theirs),
        significant(mean([run["epochs"] for run in runs])),
        str(len(runs)),
    )


def _findings(scale: Scale, kept: Kept) -> list[str]:
    texts = []
    for data in scale.data:
        ours = mean([training_seconds(run) for run in _runs("fastgcn", data, kept)])
        for other in ("graphsage-gcn", "gcn-batched"):
            theirs = mean([training_seconds(run) for run in _runs(other, data, kept)])
            if ours and theirs:
                texts.append(
                    f"On {data.label} {SYSTEMS[other]} trains {significant(theirs / ours)} times "
                    "as long as FastGCN."
                )
    return [" ".join(texts)] if texts else []


def _limits(scale: Scale) -> str:
    short = [
        f"{data.label}: {SYSTEMS[system]} {limit.epochs}"
        for data in scale.data
        for system, limit in data.limits.items()
        if limit.epochs
    ]
    every = ", ".join(f"{data.label}: {data.config.epochs}" for data in scale.data)
    return f" ({every}" + (f"; but {', '.join(short)}" if short else "") + ")"
