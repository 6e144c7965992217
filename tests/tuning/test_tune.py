"""`tune`: what is tried, what is kept, what goes on, and what is refused."""

import json
import os
import signal
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastgcn
from fastgcn.config import TrainConfig
from fastgcn.errors import FastGCNError, InputError, MissingDependencyError
from fastgcn.graph.graph import Graph
from fastgcn.settings import read_toml
from fastgcn.train.presets import resolve
from fastgcn.tuning import study
from fastgcn.tuning.space import params_of, settings_of, space
from fastgcn.tuning.study import Tuning, seconds_of, tune
from tests.cli_runner import run_cli
from tests.regression import numbers

optuna = pytest.importorskip("optuna")

FEW: dict[str, Any] = {"epochs": 3, "threads": 1}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return fastgcn.load("digits")


@pytest.fixture(scope="module")
def tuned(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    """Six trials of three epochs each."""
    return tune(graph, trials=6, run_dir=tmp_path_factory.mktemp("tuned") / "study", **FEW)


def folder_of(tuned: Tuning) -> Path:
    assert tuned.folder is not None
    return tuned.folder


def test_the_first_trial_is_the_automatic_choice_and_the_best_is_no_worse(
    tuned: Tuning, graph: Graph
) -> None:
    assert tuned.automatic.number == 0
    assert tuned.automatic.config == resolve(graph, TrainConfig(**FEW))
    assert tuned.best.value is not None
    assert tuned.automatic.value is not None
    assert tuned.best.value >= tuned.automatic.value
    assert len(tuned.trials) == 6


def test_the_best_trial_is_an_ordinary_run_with_the_same_validation_score(
    tuned: Tuning, graph: Graph
) -> None:
    path = folder_of(tuned) / f"trial-{tuned.best.number}"
    run = fastgcn.Run.load(path)
    assert max(record["val_micro_f1"] for record in run.history) == tuned.best.value
    assert run.config == tuned.best.config
    assert "test_micro_f1" in run.metrics
    assert fastgcn.predict(run, graph, [0, 1]).shape == (2, 10)


def test_the_toml_file_gives_the_same_settings(tuned: Tuning, graph: Graph) -> None:
    given = read_toml(folder_of(tuned) / "best.toml")
    assert resolve(graph, None, given | {"threads": 1}) == tuned.best.config


def test_the_search_sees_no_test_label(graph: Graph) -> None:
    """Trials are the same if every test label is another."""
    labels = np.array(graph.labels)
    labels[graph.split.test] = (labels[graph.split.test] + 1) % 10
    other = replace(graph, labels=labels)
    found = [tune(each, trials=3, **FEW) for each in (graph, other)]
    first, second = ([(e.number, e.value, e.settings) for e in each.trials] for each in found)
    assert first == second
    scores = [each.run.metrics["test_micro_f1"] for each in found]
    assert scores[0] > 0.5 > scores[1]


def test_the_same_call_goes_on(tuned: Tuning, graph: Graph) -> None:
    folder = folder_of(tuned)
    storage = optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.sqlite'}")
    kept = optuna.load_study(study_name="fastgcn", storage=storage)
    left = kept.ask()  # as a process that was killed leaves it
    again = tune(graph, trials=7, run_dir=folder, **FEW)
    assert len(again.trials) == 7
    assert {each.number for each in tuned.trials} < {each.number for each in again.trials}
    assert kept.trials[left.number].state.name == "FAIL"
    assert again.automatic == tuned.automatic


def test_a_study_of_something_else_is_refused(tuned: Tuning, graph: Graph) -> None:
    folder = folder_of(tuned)
    with pytest.raises(InputError, match="other given settings"):
        tune(graph, trials=1, run_dir=folder, epochs=2)
    with pytest.raises(InputError, match="other data"):
        tune(fastgcn.random_split(graph, seed=5), trials=1, run_dir=folder, **FEW)
    with pytest.raises(InputError, match="holds a run"):
        tune(graph, trials=1, run_dir=tuned.run.path, **FEW)


def test_the_picture_and_the_importance(tuned: Tuning) -> None:
    assert (folder_of(tuned) / "tuning.png").read_bytes()[:4] == b"\x89PNG"
    html = tuned.plot()._repr_html_()
    assert "automatic choice" in html
    assert "stopped early" in html or all(each.finished for each in tuned.trials)
    assert sum(tuned.importance.values()) == pytest.approx(1, abs=0.01)


@pytest.mark.skipif("FASTGCN_VERIFY" not in os.environ, reason="starts processes; FASTGCN_VERIFY=1")
def test_two_processes_share_a_study(graph: Graph, tmp_path: Path) -> None:
    found = tune(graph, trials=4, processes=2, run_dir=tmp_path / "s", **FEW)
    assert sorted(each.number for each in found.trials) == [0, 1, 2, 3]


def test_time_is_kept_but_the_automatic_choice_is_always_tried(graph: Graph) -> None:
    found = tune(graph, trials=100, time=0.01, **FEW)
    assert [each.automatic for each in found.trials] == [True]


def test_given_settings_are_not_searched(graph: Graph) -> None:
    found = tune(graph, trials=3, hidden=24, norm="layer", **FEW)
    for each in found.trials:
        assert (each.config.hidden, each.config.norm) == (24, "layer")
        assert not {"hidden", "norm"} & each.settings.keys()


def test_settings_that_do_not_train_are_stopped_trials(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Graph, config: TrainConfig) -> None:
        if config != resolve(graph, TrainConfig(**FEW)):
            raise InputError("too large")

    monkeypatch.setattr(study, "check_room", refuse)
    found = tune(graph, trials=3, **FEW)
    assert [each.why for each in found.trials] == ["", "too large", "too large"]


def test_an_automatic_choice_that_diverges_is_one_sentence(graph: Graph) -> None:
    huge = replace(graph, features=np.full_like(graph.features, 3e37))
    with pytest.raises(InputError, match="automatic settings diverged, where"):
        tune(huge, trials=2, feature_scaling="none", learning_rate=1.0, **FEW)


@pytest.mark.parametrize("sampled", [False, True])
def test_every_corner_of_the_space_gives_settings_that_fit_each_other(
    graph: Graph, sampled: bool
) -> None:
    given = {"samples": 100} if sampled else {}
    base = resolve(graph, None, given)
    found = space(graph, base, given, "macro_f1")
    assert ("batch_size" in found) == sampled
    assert "class_weight" in found
    start = params_of(base, found)
    assert all(found[n]._contains(found[n].to_internal_repr(v)) for n, v in start.items())
    drawing = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(200):
        drawn = base.replace(**settings_of(drawing.ask(found).params, base))
        assert drawn.is_complete


def test_regression_chooses_by_r2() -> None:
    found = tune(numbers(), trials=2, **FEW)
    assert found.metric == "r2"
    assert "loss" in {name for each in found.trials for name in each.settings}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("45", 45), (0.5, 0.5)]
)
def test_durations(text: str | float, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "ten", "5d", "-3m", "nan", "1m1h"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(InputError, match="time must be a duration"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"trials": 0}, "trials must be a whole number"),
        ({"processes": 2.5}, "processes must be a whole number"),
        ({"processes": 2}, "give run_dir too"),
        ({"hiden": 3}, "did you mean"),
        ({"metric": "r2"}, "is for regression"),
    ],
)
def test_wrong_options(graph: Graph, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tune(graph, **options)


def test_without_optuna(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'fastgcn\[tune\]'"):
        tune(graph)


def test_files_that_are_no_study(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "study.sqlite"
    file.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(FastGCNError, match="is not a study that can be read"):
        tune(graph, run_dir=tmp_path, **FEW)
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).close()
    other.touch()
    with pytest.raises(InputError, match="holds no study of fastgcn"):
        tune(graph, run_dir=tmp_path / "a", study=other, **FEW)
    assert not (tmp_path / "a").exists()


def test_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("tune", "digits", "--trials", 2, "--epochs", 2, "--threads", 1)
    outcome = run_cli(capfd, *command)
    assert outcome.code == 0, outcome.err
    assert "0 (automatic)" in outcome.out
    assert "learning_rate" in outcome.out
    assert "read once" in outcome.err
    found = json.loads(run_cli(capfd, *command, "--json").out)  # done already: shows it again
    assert [each["trial"] for each in found["trials"]] == sorted([0, 1], key=lambda n: (
        n != found["best"]["trial"]))  # fmt: skip
    assert Path(found["run"]).is_dir()
    assert Path(found["config"]).exists()
    trained = run_cli(capfd, "train", "digits", "--config", found["config"], "--threads", 1,
                      "--run-dir", "r", "--json")  # fmt: skip
    assert json.loads(trained.out)["test_micro_f1"] == found["test_micro_f1"]
    wrong = run_cli(capfd, "tune", "digits", "--time", "soon")
    assert (wrong.code, wrong.err.count("\n")) == (1, 1)


def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = study._train

    def interrupted(search: Any, trial: Any, *rest: Any) -> Any:
        if trial.number == 1:
            signal.raise_signal(signal.SIGINT)
        return ended(search, trial, *rest)

    monkeypatch.setattr(study, "_train", interrupted)
    command = ("tune", "digits", "--trials", 2, "--epochs", 2, "--threads", 1)
    outcome = run_cli(capfd, *command)
    assert outcome.code == 130
    assert "the same command goes on" in outcome.err
    monkeypatch.setattr(study, "_train", ended)
    again = run_cli(capfd, *command)
    assert again.code == 0, again.err
    assert "Going on after 1 trials" in again.err
