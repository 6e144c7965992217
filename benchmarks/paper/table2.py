"""Table 2: what precomputing ÂX saves, on Pubmed."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.published import TABLE_2
from benchmarks.paper.sample_sizes import sized_case
from benchmarks.paper.scale import Scale
from benchmarks.paper.step_times import step_times
from benchmarks.paper.tables import beside, mean, mean_sd, ratio, significant
from benchmarks.paper.trainings import Case
from fastgcn.report.page import Content, Figure, Section, Table
from fastgcn.report.plots import Series, lines

# Ours, the settings, and the column of the paper's table that it stands beside.
_KINDS: dict[str, tuple[Mapping[str, Any], str]] = {
    "both sampled": ({"precompute": False}, "sampling"),
    "both sampled, neighbours": ({"precompute": False, "neighbors_only": True}, "sampling"),
    "precompute": ({}, "precompute"),
}
_NEEDED_SAVING = 3

Scores = dict[tuple[str, int], list[float]]


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:
    """One timing of all settings in turns, and trainings of each."""
    yield _times(scale)
    for kind in _KINDS:
        for t in scale.table_sizes:
            yield from _case(kind, t, scale).plan(kept)


def _case(kind: str, t: int, scale: Scale) -> Case:
    settings, _ = _KINDS[kind]
    return sized_case(scale.medium, t, seeds=scale.table_seeds, how=kind, **settings)


def _times(scale: Scale) -> Measurement:
    configs = {_name(kind, t): _case(kind, t, scale).config
               for kind in _KINDS for t in scale.table_sizes}  # fmt: skip
    return step_times("time an epoch", scale.medium, configs, scale)


def _name(kind: str, t: int) -> str:
    return f"{kind}, t = {t}"


def present(scale: Scale, kept: Kept) -> Section:
    """Time an epoch and F1 by sample size, with and without precomputation."""
    found = kept.get(_times(scale).key) or {}
    seconds = {
        name: one["seconds_per_batch"] * one["batches_per_epoch"] for name, one in found.items()
    }
    scores: Scores = {
        (kind, t): [s["test_micro_f1"] for s in _case(kind, t, scale).scores(kept)]
        for kind in _KINDS
        for t in scale.table_sizes
    }
    data = scale.medium
    content: list[Content] = [
        _table(scale, seconds, scores),
        *_plot(scale, scores),
        *_findings(scale, seconds),
        "Importance sampling with the same t for every sampled layer, batches of "
        f"{data.config.batch_size:,}, rate {data.config.learning_rate:g}. "
        '"Both sampled" draws among all vertices, as Algorithm 2 is written; at these sizes nearly '
        "all rows of both layers then meet no sampled vertex. The authors' program draws among "
        'the neighbours of the rows above, and "neighbours" does so too, with weights that keep '
        "the estimate unbiased.",
        "An epoch's time is the median time of a batch over "
        f"{scale.rounds} chunks, after a warm-up, times the batches of an epoch; the settings "
        "take turns, so that what else runs on the machine meets all of them. It is training "
        "alone, without evaluation and without the one computation of ÂX. F1 is by the full "
        f"network; seeds: {scale.table_seeds}, or more where they are on file.",
    ]  # fmt: skip
    return Section(
        "table2",
        "Precomputing the first layer (Table 2)",
        "What does it cost, and what does it gain, to compute ÂX once instead of sampling it?",
        content,
    )


def _table(scale: Scale, seconds: dict[str, float], scores: Scores) -> Table:
    data = scale.medium
    rows = []
    for kind, (_, column) in _KINDS.items():
        for t in scale.table_sizes:
            time, found = seconds.get(_name(kind, t)), scores[kind, t]
            paper_time, paper_score = TABLE_2[column][t]
            rows.append(
                (
                    _name(kind, t),
                    significant(time),
                    beside(paper_time, data, 3),
                    ratio(time, paper_time),
                    mean_sd(found),
                    beside(paper_score, data, 3),
                    ratio(mean(found), paper_score),
                )
            )
    head = (data.label, "epoch, s", "the paper", "ratio", "F1", "the paper", "ratio")
    return Table(head, rows, "Seconds an epoch, and test micro-F1, mean ± sd over seeds")


def _plot(scale: Scale, scores: Scores) -> list[Figure]:
    series = []
    for kind in _KINDS:
        known = [t for t in scale.table_sizes if scores[kind, t]]
        if known:
            series.append(Series(kind, known, [mean(scores[kind, t]) or 0.0 for t in known]))
    if not series:
        return []
    for column, paper in TABLE_2.items():
        points = {t: paper[t][1] for t in scale.table_sizes}
        series.append(
            Series(f"the paper, {column}", list(points), list(points.values()), dashed=True)
        )
    svg = lines(
        series,
        title=f"F1 by sample size, {scale.medium.label}",
        description="Test micro-F1 against the sample size t, with both layers sampled and with "
        "the first precomputed; dashed lines are the paper's.",
        x_label="sample size t",
        y_label="test micro-F1",
        x_log=True,
    )
    return [Figure(svg, "Test micro-F1 against sample size; dashed: the paper's Table 2")]


def _findings(scale: Scale, seconds: dict[str, float]) -> list[str]:
    texts = []
    for kind in list(_KINDS)[:-1]:
        savings = [
            seconds[_name(kind, t)] / seconds[_name("precompute", t)]
            for t in scale.table_sizes
            if _name(kind, t) in seconds
        ]
        if savings:
            enough = sum(saving >= _NEEDED_SAVING for saving in savings)
            texts.append(
                f"Precomputing makes an epoch {significant(min(savings))} to "
                f"{significant(max(savings))} times as fast as with {kind}; it is at least "
                f"{_NEEDED_SAVING} times at {enough} of {len(savings)} sizes."
            )
    return [" ".join(texts) + " In the paper it is 5.3 to 5.5 times."] if texts else []
