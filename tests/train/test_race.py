"""The race: what it tries, what it keeps, and that nothing but validation decides."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fastgcn import Graph, Run, Split, TrainConfig, fit, resume
from fastgcn.backends.data import prepare
from fastgcn.machine import pool_threads, thread_count
from fastgcn.train.automatic import Candidate
from fastgcn.train.presets import best_preset, entrants
from fastgcn.train.race import Choice, Tried, choose, race, rounds_for, rounds_of
from fastgcn.train.side_by_side import train_side_by_side
from tests.cli_runner import run_cli
from tests.communities import communities, weights_of, with_only_training, without_times

GRAPH = communities(n=200, sparse=True)
HERE: dict[str, Any] = {"device": "cpu", "threads": 1}


def without_clock(choice: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if name != "seconds"}


def test_the_winner_is_one_of_the_entrants() -> None:
    found = entrants(GRAPH, None, HERE)
    choice = choose(GRAPH, None, HERE)
    assert len(found) > 2
    assert {each.name for each in choice.tried} == {each.name for each in found}
    (winner,) = (each for each in choice.tried if each.kept)
    assert dict(found)[winner.name] == choice.config
    assert winner is choice.tried[0]
    assert choice.config.is_complete


def test_a_round_drops_the_worse_half_but_for_those_close_to_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last round leaves one; the bar of progress ends at its end."""
    moved: list[int] = []

    @contextmanager
    def bar(_: str, total: int, unit: str) -> Iterator[Any]:
        moved.append(-total)
        assert unit == "epochs"
        yield moved.append

    monkeypatch.setattr("fastgcn.train.race._CLOSE", -1.0)
    monkeypatch.setattr("fastgcn.train.race.progress", bar)
    halved = sorted(each.epochs for each in choose(GRAPH, None, HERE).tried)
    first, second = rounds_of(best_preset(GRAPH))[:2]
    assert halved == [first, first, second, second]
    assert sum(moved) == 0
    monkeypatch.setattr("fastgcn.train.race._CLOSE", 1.0)
    all_close = choose(GRAPH, None, HERE).tried
    assert {each.epochs for each in all_close} == {second}
    assert sum(moved) == 0
    assert sum(each.kept for each in all_close) == 1


def test_deep_networks_have_another_round() -> None:
    flat = entrants(GRAPH, None, HERE)
    deep = Candidate("deep", flat[0].config.replace(hidden=(8, 8)))
    assert rounds_for(flat[:2]) == (20,)
    assert rounds_for([flat[0], deep]) == (20, 40)
    assert rounds_for([*flat, deep]) == (20, 40, 80)
    sampled = [
        Candidate(name, config.replace(method="fastgcn")) for name, config in (flat[0], deep)
    ]
    assert rounds_for(sampled) == (3, 6)


def test_half_the_rate_has_twice_the_epochs_of_a_round() -> None:
    config = entrants(GRAPH, None, HERE)[0].config
    assert rounds_of(config.replace(method="gcn", learning_rate=0.02)) == (20, 40, 80)
    assert rounds_of(config.replace(method="gcn", learning_rate=0.01)) == (40, 80, 160)
    assert rounds_of(config.replace(method="fastgcn", learning_rate=0.01)) == (3, 6, 12)


def test_what_is_close_in_the_first_round_is_not_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five candidates, of which the fifth is 2 % behind: it is kept by the first round alone."""
    first, *others = entrants(GRAPH, None, HERE)
    found = [first, *others, Candidate("behind", first.config.replace(hidden=(8, 8)))]
    scores = {each.name: 0.9 for each in found} | {"behind": 0.9 * 0.98}

    def judge(name: str, training: Any, *_: Any) -> Tried:
        return Tried(name, len(training.history), 0.0, 0.0, scores[name])

    monkeypatch.setattr("fastgcn.train.race.judged", judge)
    monkeypatch.setattr("fastgcn.train.race._FULL_ROUNDS", (1, 2, 3))
    epochs = {each.name: each.epochs for each in race(GRAPH, found).tried}
    assert epochs["behind"] == 2
    assert sorted(epochs.values()) == [2, 3, 3, 3, 3]


def test_the_last_two_race_on_to_the_last_round_if_they_are_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deep network is 0.5 % behind at first, and ends in front."""
    first, second, *_ = entrants(GRAPH, None, HERE)
    found = [first, second, Candidate("deep", first.config.replace(hidden=(8, 8)))]

    def judge(name: str, training: Any, *_: Any) -> Tried:
        epochs = len(training.history)
        score = 0.9 + 0.001 * epochs if name == "deep" else {first.name: 0.907}.get(name, 0.5)
        return Tried(name, epochs, 0.0, 0.0, score)

    monkeypatch.setattr("fastgcn.train.race.judged", judge)
    monkeypatch.setattr("fastgcn.train.race._FULL_ROUNDS", (2, 4, 8))
    choice = race(GRAPH, found)
    assert {each.name: each.epochs for each in choice.tried} == {
        "deep": 8, first.name: 8, second.name: 2
    }  # fmt: skip
    assert [each.name for each in choice.tried if each.kept] == ["deep"]


def test_the_same_seed_gives_the_same_run_and_another_may_not() -> None:
    one, two = (fit(GRAPH, seed=3, **HERE) for _ in range(2))
    assert weights_of(one.model) == weights_of(two.model)
    assert [without_times(each) for each in one.history] == [
        without_times(each) for each in two.history
    ]
    assert without_clock(one.metrics["choice"]) == without_clock(two.metrics["choice"])


def test_the_winner_trains_on_as_if_it_had_trained_alone() -> None:
    raced = fit(GRAPH, **HERE)
    alone = fit(GRAPH, raced.config)
    assert weights_of(raced.model) == weights_of(alone.model)
    assert [without_times(each) for each in raced.history] == [
        without_times(each) for each in alone.history
    ]
    assert "choice" not in alone.metrics


def test_test_labels_are_not_read() -> None:
    assert GRAPH.labels is not None
    other = np.array(GRAPH.labels)
    other[GRAPH.split.test] = (other[GRAPH.split.test] + 1) % 3
    changed = communities(n=200, sparse=True, labels=other)
    one, two = (choose(graph, None, HERE) for graph in (GRAPH, changed))
    assert one.config == two.config
    assert one.tried == two.tried


def test_the_run_keeps_what_was_tried(tmp_path: Path) -> None:
    run = fit(GRAPH, run_dir=tmp_path / "run", **HERE)
    kept = json.loads((tmp_path / "run/config.json").read_text())["choice"]
    assert kept == Run.load(tmp_path / "run").metrics["choice"] == run.metrics["choice"]
    assert Choice.from_dict(run.config, kept).to_dict() == kept
    assert sum(each["kept"] for each in kept["tried"]) == 1
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert len(lines) == len(run.history)


def test_an_interrupted_run_does_not_race_again(tmp_path: Path) -> None:
    class StoppedError(Exception): ...

    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 80:
            raise StoppedError

    whole = fit(GRAPH, **HERE)
    with pytest.raises(StoppedError):
        fit(GRAPH, run_dir=tmp_path / "run", callbacks=[stop], **HERE)
    seen: list[int] = []
    run = resume(tmp_path / "run", GRAPH, callbacks=[lambda record: seen.append(record["epoch"])])
    assert seen[-1] == len(run.history)
    assert weights_of(run.model) == weights_of(whole.model)
    assert without_clock(run.metrics["choice"]) == without_clock(whole.metrics["choice"])


def test_callbacks_see_every_epoch_of_the_winner_and_may_stop_it() -> None:
    seen: list[int] = []
    run = fit(GRAPH, callbacks=[lambda record: seen.append(record["epoch"])], **HERE)
    assert seen == list(range(1, len(run.history) + 1))
    stopped = fit(GRAPH, callbacks=[lambda record: record["epoch"] == 5], **HERE)
    assert len(stopped.history) == 5
    assert [without_times(each) for each in stopped.history] == [
        without_times(each) for each in run.history[:5]
    ]


@pytest.mark.parametrize(
    ("graph", "settings"),
    [
        (GRAPH, {"preset": "fast"}),
        (GRAPH, {"epochs": 10}),
        (with_only_training(GRAPH), {}),
        (GRAPH, {"preset": "paper"}),
        (GRAPH, {"method": "graphsage-mean"}),
    ],
    ids=["fast", "few epochs", "no validation", "paper", "another method"],
)
def test_where_there_is_no_race(graph: Graph, settings: dict[str, Any]) -> None:
    choice = choose(graph, None, settings)
    assert not choice.tried
    assert choice.training is None
    if settings.get("preset", "fast") == "fast" and "method" not in settings:
        given = {name: value for name, value in settings.items() if name != "preset"}
        given |= {"ensemble": 1} if "preset" in settings else {}
        assert choice.config == best_preset(graph).replace(**given)


def test_a_candidate_that_does_not_fit_is_left_out() -> None:
    found = entrants(GRAPH, TrainConfig(hidden=7))
    assert 0 < len(found) < len(entrants(GRAPH))
    assert all(each.config.hidden == 7 and not each.config.pair for each in found)


def test_asking_about_sampling_asks_for_sampling() -> None:
    assert resolved_methods() == {"gcn"}
    assert resolved_methods(samples=50) == resolved_methods(batch_size=20) == {"fastgcn"}


def resolved_methods(**settings: Any) -> set[str]:
    return {each.config.method for each in entrants(GRAPH, None, settings)}


def test_a_graph_where_neighbours_mislead_has_own_rows() -> None:
    """Edges join nodes of different classes at random; features tell the classes."""
    rng = np.random.default_rng(0)
    n = 400
    labels = np.arange(n) % 4
    features = np.eye(4)[labels] + 0.3 * rng.normal(size=(n, 4))
    source, target = rng.integers(n, size=(2, 4 * n))
    order = rng.permutation(n)
    split = Split(*(np.sort(part) for part in np.split(order, [240, 320])))
    graph = Graph.from_edges(source, target, features=features, labels=labels, split=split)
    run = fit(graph, **HERE)
    assert run.config.skip
    assert run.metrics["val_micro_f1"] > 0.9


def test_the_command_prints_the_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = run_cli(capfd, "train", "digits", "--run-dir", tmp_path / "run", "--epochs", 61)
    assert outcome.code == 0, outcome.err
    assert "candidate" in outcome.err
    assert "chosen" in outcome.err
    assert "by validation after" in outcome.err
    outcome = run_cli(
        capfd, "train", "digits", "--fast", "--run-dir", tmp_path / "fast", "--epochs", 40
    )
    assert outcome.code == 0, outcome.err
    assert "candidate" not in outcome.err
    outcome = run_cli(capfd, "train", "digits", "--fast", "--preset", "paper")
    assert outcome.code == 1
    assert "--fast is --preset fast, but --preset paper is given" in outcome.err


def test_candidates_share_what_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal Â and X are made once, whatever the network."""

    def kind(config: TrainConfig) -> tuple[str, str]:
        return config.normalization, config.feature_scaling

    made: list[tuple[str, str]] = []

    def counted(graph: Graph, config: TrainConfig, folder: Path | None) -> Any:
        made.append(kind(config))
        return prepare(graph, config, folder)

    monkeypatch.setattr("fastgcn.backends.cpu.prepare", counted)
    choose(GRAPH, None, HERE)
    kinds = [kind(each.config) for each in entrants(GRAPH, None, HERE)]
    assert sorted(made) == sorted(set(kinds))
    assert len(kinds) > len(made)


@pytest.mark.parametrize(
    ("degree", "n", "full"), [(4, 200, True), (4, 20_000, True), (4, 2_000_000, False)]
)
def test_full_passes_are_taken_where_they_are_cheap(degree: int, n: int, full: bool) -> None:
    """By sizes alone; nothing is timed."""
    source = np.repeat(np.arange(n), degree // 2)
    graph = Graph.from_edges(
        source,
        (source + 1 + np.arange(len(source)) % 5) % n,
        features=csr_array((n, 50), dtype=np.float32),
        labels=np.arange(n) % 3,
        split=Split(train=np.arange(0, n, 2), val=np.arange(1, n, 10)),
    )
    methods = {each.config.method for each in entrants(graph, None, HERE)}
    assert methods == {"gcn" if full else "fastgcn"}


def test_a_graph_that_is_too_large_is_not_raced_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastgcn.train.race._LARGEST_EPOCH", 1)
    choice = choose(GRAPH, None, HERE)
    assert choice.config == best_preset(GRAPH).replace(**HERE)
    assert "too large to race on" in choice.why


def test_a_round_ends_with_a_validation() -> None:
    choice = choose(GRAPH, None, HERE | {"validate_every": 7})
    assert all(each.epochs % 7 == 0 and (each.val_micro_f1 or 0) > 0 for each in choice.tried)


def test_candidates_share_all_threads_and_the_last_has_them_all() -> None:
    """Of five threads, two candidates have three and two, and one that is left has five."""
    seen: dict[int, list[int]] = {0: [], 1: []}
    both = threading.Barrier(2, timeout=60)  # neither ends its first epoch before both began

    class Short:
        """Ends after its second epoch; `last` goes on until it has all threads."""

        backend = SimpleNamespace(device=torch.device("cpu"))
        history: ClassVar[list[dict[str, float]]] = []

        def __init__(self, number: int, *, last: bool) -> None:
            self.number, self.last = number, last

        @property
        def has_more_epochs(self) -> bool:
            mine = seen[self.number]
            return len(mine) < 10_000 and 5 not in mine if self.last else len(mine) < 2

        def epoch(self) -> None:
            mine = seen[self.number]
            if not mine:
                both.wait()
            else:
                time.sleep(1e-3)
            mine.append(pool_threads())

    running: Any = {number: Short(number, last=number == 1) for number in (0, 1)}
    with thread_count(5):
        assert train_side_by_side(running, 9, lambda _: None) == {}
    assert (seen[0], seen[1][0], seen[1][-1]) == ([3, 3], 2, 5)
