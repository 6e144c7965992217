"""Figure 3: time a batch and accuracy of all systems."""

from collections.abc import Iterator
from functools import partial

from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.published import F1, SYSTEMS
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.paper.systems import batch_times, comparison, systems_on
from benchmarks.paper.tables import DASH, against_paper, mean, mean_sd, significant
from benchmarks.paper.trainings import Case
from benchmarks.results import Record
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import bars


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:
    """Times of all systems in turns, and trainings of each."""
    for data in scale.data:
        yield batch_times(data, scale)
    for data in scale.data:
        for case in comparison(data).values():
            yield from case.plan(kept)


def present(scale: Scale, kept: Kept) -> Section:
    """Bars of the time a batch, and the table of F1."""
    content: list[Content] = []
    seconds = {data.label: seconds_a_batch(data, scale, kept) for data in scale.data}
    if any(seconds.values()):
        content.append(_bars(scale, seconds))
    rows = {name: partial(_score, kept, system) for system, name in SYSTEMS.items()}
    content += [
        against_paper(
            rows,
            scale.data,
            caption="Test micro-F1, mean ± sd over seeds",
            digits=3,
        ),
        *_findings(scale, seconds, kept),
        "Times are those of Table 3, below. Every system trains in the same loop, and stops by "
        "the same rule: after "
        f"{scale.small.config.patience} epochs without a better validation score, or at the limit "
        "of the table. Validation chooses the epoch that is kept and, where several are given, "
        "the learning rate: the smallest whose mean is within a standard error of the best. Test "
        "nodes are looked at once, by the full network.",
        _settings(scale, kept),
    ]
    return Section(
        "figure3",
        "Time a batch and accuracy (Figure 3)",
        "Is FastGCN faster than the other systems, and as accurate?",
        content,
    )


def seconds_a_batch(data: DataSet, scale: Scale, kept: Kept) -> dict[str, float]:
    """The measured time of every system, by name; empty where it is not on file."""
    found: Record = kept.get(batch_times(data, scale).key) or {}
    return {system: times["seconds_per_batch"] for system, times in found.items()}


def _bars(scale: Scale, seconds: dict[str, dict[str, float]]) -> Figure:
    labels = [data.label for data in scale.data]
    series = [
        (name, [seconds[label].get(system) for label in labels])
        for system, name in SYSTEMS.items()
    ]  # fmt: skip
    svg = bars(
        labels,
        series,
        title="Training time a batch",
        description="Seconds a batch on a logarithmic scale: "
        + " ".join(_speed(label, seconds[label]) for label in labels if seconds[label]),
        y_label="seconds a batch",
        y_log=True,
        unit=" s",
    )
    return Figure(svg, "Seconds a batch, on a logarithmic scale; a batch of the original GCN is all"
                  " nodes")  # fmt: skip


def _speed(label: str, times: dict[str, float]) -> str:
    """How the others compare with FastGCN."""
    others = [
        f"{SYSTEMS[system]} takes {significant(t / times['fastgcn'])} times as long"
        for system, t in times.items()
        if system != "fastgcn"
    ]
    return (
        f"On {label} FastGCN takes {significant(1000 * times['fastgcn'])} ms a batch; "
        + ", ".join(others)
        + "."
    )


def _score(kept: Kept, system: str, data: DataSet) -> tuple[float | None, str, float | None]:
    scores = test_scores(system, data, kept)
    return mean(scores), mean_sd(scores), F1[system].get(data.paper)


def test_scores(system: str, data: DataSet, kept: Kept) -> list[float]:
    """Test micro-F1 of a system, a seed each."""
    case = comparison(data).get(system)
    return [s["test_micro_f1"] for s in case.scores(kept)] if case else []


def _findings(scale: Scale, seconds: dict[str, dict[str, float]], kept: Kept) -> list[str]:
    texts = [_speed(data.label, seconds[data.label]) for data in scale.data if seconds[data.label]]
    for data in scale.data:
        ours = mean(test_scores("fastgcn", data, kept))
        batched = mean(test_scores("gcn-batched", data, kept))
        if ours is not None and batched is not None:
            texts.append(
                f"On {data.label} the F1 of FastGCN minus that of batched GCN is "
                f"{ours - batched:+.3f}."
            )
    return [" ".join(texts)] if texts else []


def _settings(scale: Scale, kept: Kept) -> Table:
    rows = []
    for data in scale.data:
        for system in systems_on(data):
            case = comparison(data)[system]
            rows.append(
                (
                    case.label,
                    f"{case.config.batch_size:,}" if system != "gcn" else "all",
                    " or ".join(f"{rate:g}" for rate in case.rates),
                    _chosen(case, kept),
                    f"{case.config.epochs:,}",
                    str(len(case.scores(kept))),
                )
            )
    head = ("", "batch", "rates", "chosen", "most epochs", "seeds")
    return Table(head, rows, "Settings of these trainings")


def _chosen(case: Case, kept: Kept) -> str:
    rate = case.rate(kept)
    return DASH if rate is None else f"{rate:g}"
