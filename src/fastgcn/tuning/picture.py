"""The picture of a tuning: every trial's score, the best so far, and what matters."""

import math
from collections.abc import Sequence

from fastgcn.metrics import better
from fastgcn.report.notebook import Picture
from fastgcn.report.page import Figure
from fastgcn.report.plots import Series, bars, lines
from fastgcn.report.training import score_name
from fastgcn.tuning.study import Trial, Tuning

_MOST_PARAMETERS = 12


def picture_of(found: Tuning) -> Picture:
    """Two figures: scores by trial, and the importance of parameters if it is known."""
    figures = [_scores(found)]
    if found.importance:
        figures.append(_importance(found))
    return Picture(figures)


def _scores(found: Tuning) -> Figure:
    metric = found.metric
    ordered = sorted(found.trials, key=lambda each: each.number)
    finished = [each for each in ordered if each.finished]
    stopped = [each for each in ordered if not each.finished and each.value is not None]
    ends = [ordered[0].number, ordered[-1].number]
    automatic = _value(found.automatic)
    series = [
        Series("best so far", [e.number for e in finished], _best_so_far(finished, metric),
               markers=False),
        Series("finished", *_points(finished), line=False),
        Series("stopped early", *_points(stopped), line=False),
        Series("automatic choice", ends, [automatic, automatic], dashed=True, markers=False),
    ]  # fmt: skip
    # Bad trials lie far away, and would press the others together.
    values = sorted(map(_value, finished), key=lambda value: -better(metric, value))
    worst = values[(3 * len(values)) // 4]
    best = _value(found.best)
    room = 0.25 * abs(best - worst) or 0.01 * (abs(best) or 1)
    low, high = min(best, worst) - room, max(best, worst) + room
    svg = lines(
        [each for each in series if each.x],
        title=f"Validation {score_name(metric)} of {len(ordered)} trials",
        description=f"The best is trial {found.best.number}, {best:.4f}; the automatic choice has "
        f"{automatic:.4f}. Scores beyond the frame are drawn at its edge.",
        x_label="trial",
        y_label=score_name(metric),
        y_range=(low, high),
    )
    return Figure(svg, "Scores of the trials on the validation nodes.")


def _value(trial: Trial) -> float:
    return math.nan if trial.value is None else trial.value


def _points(trials: Sequence[Trial]) -> tuple[list[float], list[float]]:
    return [each.number for each in trials], [_value(each) for each in trials]


def _best_so_far(trials: Sequence[Trial], metric: str) -> list[float]:
    found: list[float] = []
    for each in trials:
        value = _value(each)
        found.append(
            value if not found or better(metric, value) > better(metric, found[-1]) else found[-1]
        )
    return found


def _importance(found: Tuning) -> Figure:
    shares = dict(list(found.importance.items())[:_MOST_PARAMETERS])
    first = next(iter(shares))
    svg = bars(
        list(shares),
        [("importance", list(shares.values()))],
        title="Importance of the parameters",
        description=f"{first} has the largest share, {shares[first]:.2f}.",
        y_label="share in the differences",
    )
    return Figure(svg, "How much each parameter matters among finished trials (fANOVA).")
