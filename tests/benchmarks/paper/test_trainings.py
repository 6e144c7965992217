"""Trainings: which are planned, what validation chooses, and what following one over time adds."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.trainings import Case, follow

from fastgcn import TrainConfig, fit
from tests.communities import communities, quick

CONFIG = TrainConfig(hidden=4, samples=5, epochs=8).complete()
CASE = Case("case", "digits", "own", CONFIG, rates=(0.01, 0.001), seeds=3, curve=True)


def put(kept: Kept, measurement: Measurement, validation: float) -> None:
    """A made-up result in the place of a measured one."""
    value = {"val_micro_f1": validation, "test_micro_f1": validation / 2}
    kept.results.measure(measurement.key, lambda: value)


def told(measurements: list[Measurement]) -> list[tuple[float, int, int]]:
    """Rate, seed and epochs of planned trainings."""
    configs = [m.key["config"] for m in measurements]
    return [(c["learning_rate"], c["seed"], c["epochs"]) for c in configs]


def test_rates_are_searched_before_the_rest_of_the_seeds(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    plan = CASE.plan(kept)
    for validation in (0.6, 0.8):
        put(kept, next(plan), validation)
    assert CASE.rate(kept) == 0.001
    assert told(list(plan)) == [(0.001, seed, 8) for seed in range(3)]


def test_as_long_as_no_rate_is_chosen_there_are_no_scores(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    put(kept, next(CASE.plan(kept)), 0.6)
    assert CASE.rate(kept) is None
    assert CASE.scores(kept) == []
    assert len(list(CASE.plan(kept))) == 5  # so that the count is right from the start


def test_a_search_may_be_shorter_than_the_trainings(tmp_path: Path) -> None:
    case = Case("case", "digits", "own", CONFIG, (0.01, 0.001), seeds=1, search_epochs=2)
    assert told(list(case.plan(Kept(tmp_path)))) == [(0.01, 0, 2), (0.001, 0, 2), (0.01, 0, 8)]


def test_all_seeds_on_file_count_in_the_choice_and_in_the_scores(tmp_path: Path) -> None:
    kept, more = Kept(tmp_path), Case("", "digits", "own", CONFIG, (0.01, 0.001), 5, search_seeds=5)
    for number, measurement in enumerate(more.plan(kept)):
        put(kept, measurement, 0.5 + 0.01 * number)
    assert len(CASE.scores(kept)) == 5
    assert [s["val_micro_f1"] for s in CASE.scores(kept)] == pytest.approx(
        [0.55, 0.56, 0.57, 0.58, 0.59]
    )


def test_a_plain_training_on_file_serves_the_search_but_not_the_clock(tmp_path: Path) -> None:
    kept, plain = Kept(tmp_path), Case("", "digits", "own", CONFIG, (0.01,), 1)
    put(kept, next(plain.plan(kept)), 0.9)
    searched, *_, timed = (m for m in CASE.plan(kept) if m.key["config"]["seed"] == 0)
    assert told([searched]) == told([timed]) == [(0.01, 0, 8)]
    assert not kept.lacks(searched)
    assert kept.lacks(timed)
    assert plain.scores(kept, timed=True) == []


@pytest.mark.parametrize("config", [quick(), quick(early_stopping="patience", patience=1)])
def test_following_a_training_does_not_change_it(config: Any) -> None:
    graph = communities()
    config = config.replace(epochs=6)
    followed, plain = follow(graph, config), fit(graph, config).metrics
    for name in ("epochs", "best_epoch", "val_micro_f1", "test_micro_f1", "batches"):
        assert followed[name] == plain[name]


def test_a_curve_has_a_point_an_epoch_and_time_goes_on() -> None:
    curve = follow(communities(), quick(epochs=5))["curve"]
    assert len(curve["seconds"]) == len(curve["train"]) == len(curve["test"]) == 5
    assert curve["seconds"] == sorted(curve["seconds"])
    assert all(0 <= accuracy <= 1 for accuracy in curve["train"] + curve["test"])


def test_long_trainings_have_curves_of_a_few_hundred_points() -> None:
    curve = follow(communities(), quick(epochs=450, batch_size=64))["curve"]
    assert len(curve["seconds"]) == 225
