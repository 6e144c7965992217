"""The headline scores, trained again and held against intervals of the scores on file.

New and recorded scores are compared split by split. A difference of means has the standard error
s·√(Σ(1/k + 1/m))/n over n splits with k new and m recorded scores each; s² is the variance of the
recorded scores within their splits. If nothing but the draws has changed, a mean leaves its
interval with the chance `FALSE_ALARM`. Nothing is chosen here: rates are those that validation
chose for the results on file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from benchmarks.accuracy import SEEDS, paper_cases
from benchmarks.peers.accuracy import OURS, Cell, Plan, key, our_measurement
from benchmarks.processes import together
from benchmarks.results import Measurement, Record, Results
from fastgcn.report.page import Table

FALSE_ALARM = 0.001  # of each row

# The default on random splits; those left out take minutes each on a core.
DEFAULT_ON = ("cora", "citeseer", "cora_ml", "acm", "pubmed", "blogcatalog", "amazon_photo")
_PAPER = ("FastGCN, importance", "FastGCN-transductive")

Scores = Mapping[str, Sequence[float]]  # test micro-F1 of some seeds, by split


@dataclass(frozen=True, slots=True)
class Headline:
    """A row of a headline table: what is on file, and the trainings that repeat it, by split."""

    name: str
    recorded: Scores
    trainings: Mapping[str, Sequence[Measurement]] = field(repr=False)

    def half_width(self) -> float:
        """Half of the interval of the mean of the new scores."""
        degrees = sum(len(scores) - 1 for scores in self.recorded.values())
        squares = sum(np.sum((s - np.mean(s)) ** 2) for s in map(np.array, self.recorded.values()))
        each = [1 / len(self.trainings[s]) + 1 / len(self.recorded[s]) for s in self.recorded]
        error = (squares / degrees * sum(each)) ** 0.5 / len(each)
        return float(stats.t.ppf(1 - FALSE_ALARM / 2, degrees) * error)

    @property
    def mean(self) -> float:
        """The mean on file, over splits."""
        return float(np.mean([np.mean(scores) for scores in self.recorded.values()]))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The mean of the new scores, and the interval that it should lie in."""

    name: str
    now: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        return self.low <= self.now <= self.high

    @property
    def sentence(self) -> str:
        """What is wrong if it does not hold."""
        side = "below" if self.now < self.low else "above"
        return (
            f"{self.name}: the mean of test micro-F1 is now {self.now:.4f}, {side} its interval by "
            f"the results on file, {self.low:.4f} to {self.high:.4f}"
        )


def paper_headlines(results: Results, seeds: int, names: Sequence[str] = _PAPER) -> list[Headline]:
    """The paper's settings on Cora and Pubmed, at the rate that validation chose."""
    found = []
    for case in paper_cases(SEEDS):
        scores, rate = case.test_scores(results), case.rate(results)
        if case.label in names and rate is not None and len(scores) > 1:
            trainings = [case.training(rate, seed) for seed in range(seeds)]
            name = f"{case.data}, {case.split}: {case.label}"
            found.append(Headline(name, {case.split: scores}, {case.split: trainings}))
    return found


def default_headlines(results: Results, data: Sequence[str], plan: Plan) -> list[Headline]:
    """The default with nothing said on random splits, one new training each."""
    found = []
    for name in data:
        recorded: dict[str, list[float]] = {}
        cells = [c for c in plan.cells(name, range(plan.seeds)) if c.split == "random"]
        values = results.of_one_code(key(OURS, cell) for cell in cells)
        for cell, value in zip(cells, values, strict=True):
            if value is not None:
                recorded.setdefault(str(cell.split_seed), []).append(value["test_micro_f1"])
        several = {split: scores for split, scores in recorded.items() if len(scores) > 1}
        if several:
            trainings = {
                split: [our_measurement(Cell(name, "random", int(split), 0))] for split in several
            }
            found.append(Headline(f"{name}, random: the default", several, trainings))
    return found


def check(headlines: Iterable[Headline], jobs: int = 1) -> list[Verdict]:
    """Train all of them again."""
    rows = [*headlines]
    wanted = [m for row in rows for each in row.trainings.values() for m in each]
    lines = (
        map(Measurement.record, wanted) if jobs == 1 else together(Measurement.record, wanted, jobs)
    )
    scores = {repr(line["key"]): line["value"]["test_micro_f1"] for line in lines if line}

    def now(row: Headline) -> float:
        splits = row.trainings.values()
        return float(np.mean([np.mean([scores[repr(dict(m.key))] for m in s]) for s in splits]))

    return [
        Verdict(row.name, now(row), row.mean - row.half_width(), row.mean + row.half_width())
        for row in rows
    ]


def table(verdicts: Sequence[Verdict]) -> Table:
    rows = [
        (v.name, f"{v.low:.4f} to {v.high:.4f}", f"{v.now:.4f}", "yes" if v.holds else "NO")
        for v in verdicts
    ]
    caption = f"Test micro-F1 trained again; false alarms: {FALSE_ALARM:.1%} a row"
    return Table(("", "interval of the results on file", "now", "inside"), rows, caption)


def as_records(verdicts: Sequence[Verdict]) -> list[Record]:
    return [
        {"name": v.name, "now": v.now, "low": v.low, "high": v.high, "holds": v.holds}
        for v in verdicts
    ]
