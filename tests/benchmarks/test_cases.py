"""Trainings: which are planned, what validation chooses, and what following one over time adds."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy import table
from benchmarks.cases import Case, best_rate, follow, train, without_test
from benchmarks.pages import Experiment, measure
from benchmarks.paper_scale import full
from benchmarks.results import Measurement, Results

from fastgcn import TrainConfig, fit, load
from tests.communities import communities, quick

CONFIG = TrainConfig(hidden=4, samples=5, epochs=8).complete()


def case(**changes: Any) -> Case:
    settings: dict[str, Any] = {"rates": (0.01, 0.001), "seeds": 3} | changes
    return Case(label="case", data="digits", split="own", config=CONFIG, **settings)


CASE = case(curve=True)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "r.jsonl")


def put(results: Results, wanted: Measurement, validation: float, test: float = 0.5) -> None:
    """A made-up result in the place of a measured one."""
    value = {"val_micro_f1": validation, "test_micro_f1": test}
    results.measure(Measurement("", wanted.key, lambda: value, ("fastgcn.errors",)))


def told(measurements: list[Measurement]) -> list[tuple[float, int, int]]:
    """Rate, seed and epochs of planned trainings."""
    configs = [m.key["config"] for m in measurements]
    return [(c["learning_rate"], c["seed"], c["epochs"]) for c in configs]


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ({0.01: [0.9, 0.9], 0.001: [0.8, 0.8]}, 0.01),
        ({0.01: [0.8, 0.8], 0.001: [0.9, 0.9]}, 0.001),
        ({0.01: [0.88, 0.92], 0.001: [0.89, 0.89], 0.0001: [0.87, 0.87]}, 0.01),
        ({0.01: [0.9, 0.8], 0.001: [0.8, 0.9]}, 0.001),  # of equal ones the smallest
        ({0.01: [0.9]}, 0.01),
    ],
)
def test_best_rate(validation: dict[float, list[float]], expected: float) -> None:
    assert best_rate(validation) == expected


def test_every_rate_is_trained_with_every_seed_to_the_end(results: Results) -> None:
    plan = CASE.plan(results)
    tried = [next(plan) for _ in range(6)]
    assert told(tried) == [(rate, seed, 8) for rate in (0.01, 0.001) for seed in range(3)]
    for number, each in enumerate(tried):
        assert CASE.rate(results) is None
        put(results, each, validation=0.6 + 0.1 * (number > 2))
    assert CASE.rate(results) == 0.001
    assert told(list(plan)) == [(0.001, seed, 8) for seed in range(3)]


def test_ours_and_others_have_the_same_rule() -> None:
    """The same rates, epochs, patience and seeds, but for what the page says is limited."""
    for data in full().data:
        cases = {system: data.case(system) for system in data.systems}
        rules = {
            (case.rates, case.seeds, case.config.epochs, case.config.early_stopping,
             case.config.patience)
            for system, case in cases.items() if system not in data.limits
        }  # fmt: skip
        assert len(rules) == 1
        limited = {"gcn"} if data.paper != "Reddit" else {*data.systems} - {"fastgcn"}
        assert {*data.limits} == limited


def test_test_scores_have_no_part_in_the_choice(results: Results) -> None:
    """Validation prefers one rate, test the other; and what chooses is given no test score."""
    plan = CASE.plan(results)
    for number in range(6):
        first = number < 3
        put(results, next(plan), validation=0.8 if first else 0.6, test=0.1 if first else 0.9)
    assert CASE.rate(results) == 0.01
    assert told(list(plan)) == [(0.01, seed, 8) for seed in range(3)]
    everything = {
        "val_micro_f1": 1, "test_micro_f1": 2, "test_loss": 3, "test_classes": {}, "best_epoch": 4,
        "curve": {"test": [0.9], "seconds": [1.0]},
    }  # fmt: skip
    assert without_test(everything) == {"val_micro_f1": 1, "best_epoch": 4}


def test_as_long_as_no_rate_is_chosen_there_are_no_scores(results: Results) -> None:
    put(results, next(CASE.plan(results)), 0.6)
    assert CASE.rate(results) is None
    assert CASE.runs(results) == []
    assert len(list(CASE.plan(results))) == 9  # so that the count is right from the start


def test_all_seeds_on_file_count_in_the_choice_and_in_the_scores(results: Results) -> None:
    more = case(seeds=5)
    for number, measurement in enumerate(more.plan(results)):
        put(results, measurement, 0.5 + 0.01 * number)
    expected = [0.55, 0.56, 0.57, 0.58, 0.59]
    assert [s["val_micro_f1"] for s in CASE.runs(results)] == pytest.approx(expected)


def test_a_plain_training_on_file_serves_the_search_but_not_the_clock(results: Results) -> None:
    plain = case(rates=(0.01,), seeds=1)
    put(results, next(plain.plan(results)), 0.9)
    searched, *_, timed = (m for m in CASE.plan(results) if m.key["config"]["seed"] == 0)
    assert told([searched]) == told([timed]) == [(0.01, 0, 8)]
    assert not results.lacks(searched)
    assert results.lacks(timed)
    assert plain.runs(results, timed=True) == []


def test_a_random_split_is_another_one_for_every_seed(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TrainConfig(hidden=8, samples=50, epochs=2).complete()
    tiny = Case(
        label="tiny", data="digits", split="random", config=settings, rates=(0.05, 0.01), seeds=2,
        published=0.9,
    )  # fmt: skip
    trained_on = []

    def watched(graph: Any, config: TrainConfig) -> Any:
        trained_on.append((config.seed, graph.split.test.tobytes()))
        return train(graph, config)

    monkeypatch.setattr("benchmarks.cases.train", watched)
    some = Experiment(name="a", title="A", plan=tiny.plan, show=lambda _: [])
    assert measure([some], results) == 4
    lines = [json.loads(line) for line in results.path.read_text().splitlines()]
    assert len({*trained_on}) == len({test for _, test in trained_on}) == 2
    assert all(line["key"]["split_seed"] == line["key"]["config"]["seed"] for line in lines)
    (row,) = table([tiny], results).rows
    chosen = [
        line["value"]["test_micro_f1"]
        for line in lines
        if f"{line['key']['config']['learning_rate']:g}" == row[2]
    ]
    assert row[4].startswith(f"{sum(chosen) / 2:.4f} ± ")
    assert row[7] == "2"


@pytest.mark.parametrize("config", [quick(), quick(early_stopping="patience", patience=1)])
def test_following_a_training_does_not_change_it(config: Any) -> None:
    graph = communities()
    config = config.replace(epochs=6)
    followed, plain = follow(graph, config), fit(graph, config).metrics
    for name in ("epochs", "best_epoch", "val_micro_f1", "test_micro_f1", "batches"):
        assert followed[name] == plain[name]


def test_the_test_score_is_that_of_the_epoch_that_validation_kept() -> None:
    """Of a training whose last epoch is worse."""
    graph = load("digits")
    config = CONFIG.replace(learning_rate=0.1, hidden=16, samples=50, epochs=7, threads=1, seed=3)
    followed, plain = follow(graph, config), fit(graph, config).metrics
    curve = followed["curve"]["test"]
    assert followed["best_epoch"] < 7
    assert followed["test_micro_f1"] == plain["test_micro_f1"] > curve[-1] + 0.02


def test_a_curve_has_a_point_an_epoch_and_time_goes_on() -> None:
    curve = follow(communities(), quick(epochs=5))["curve"]
    assert len(curve["seconds"]) == len(curve["train"]) == len(curve["test"]) == 5
    assert curve["seconds"] == sorted(curve["seconds"])
    assert all(0 <= accuracy <= 1 for accuracy in curve["train"] + curve["test"])


def test_long_trainings_have_curves_of_a_few_hundred_points() -> None:
    curve = follow(communities(), quick(epochs=450, batch_size=64))["curve"]
    assert len(curve["seconds"]) == 225
