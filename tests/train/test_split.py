"""A graph without a split: one is drawn, said, kept in the run, and found again."""

import json
from pathlib import Path
from typing import Any

import pytest

import fastgcn
from fastgcn import FastGCNClassifier, Graph, Run, Split, evaluate, fit, predict, random_split
from fastgcn.errors import InputError
from fastgcn.report import run_report
from tests.cli_runner import run_cli
from tests.communities import communities, quick
from tests.strategies import split_of

BARE = communities(split=split_of())
DRAWN = random_split(BARE)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr("fastgcn.data.splits.note", found.append)
    return found


def test_fit_draws_the_split_that_load_draws(tmp_path: Path, said: list[str]) -> None:
    run = fit(BARE, quick(), run_dir=tmp_path / "run")
    known = fit(DRAWN, quick())
    assert run.metrics["test_loss"] == known.metrics["test_loss"]
    assert run.fingerprint == known.fingerprint
    assert len(said) == 1
    assert said[0].startswith("communities has no split: 60, 20 and 20 % of each class")
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    assert about["data"] == {"split": "random"}
    assert Run.load(tmp_path / "run").source == {"split": "random"}


def test_the_run_finds_its_split_again() -> None:
    run = fit(BARE, quick())
    for part in ("train", "val", "test"):
        assert evaluate(run, BARE, part) == evaluate(run, DRAWN, part)
    assert predict(run, BARE, "test").tolist() == predict(run, DRAWN, "test").tolist()
    assert run.confusion(BARE).equals(run.confusion(DRAWN))
    assert run_report(run, BARE) == run_report(run, DRAWN)
    other = fit(random_split(BARE, seed=7, train=0.4), quick())
    assert evaluate(other, BARE, "test").loss == other.metrics["test_loss"]


@pytest.mark.parametrize(
    "make",
    [lambda: fit(communities(), quick()), lambda: fit(BARE, quick()).model],
    ids=["a run on another split", "a model, which knows no split"],
)
def test_a_split_that_may_be_another_is_not_drawn(make: Any) -> None:
    """Its test nodes could be training nodes of the run."""
    with pytest.raises(InputError, match="the test part of communities's split is empty"):
        evaluate(make(), BARE, "test")


def test_other_labels_have_another_split() -> None:
    labels = 2 - BARE.labels if BARE.labels is not None else None
    with pytest.raises(InputError, match="split is empty"):
        evaluate(fit(BARE, quick()), communities(split=split_of(), labels=labels), "test")


def test_a_run_is_resumed_with_the_graph_that_has_no_split(tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(BARE, quick(), run_dir=tmp_path / "run", callbacks=[stop])
    resumed = fastgcn.resume(tmp_path / "run", BARE)
    assert resumed.metrics["test_loss"] == fit(DRAWN, quick()).metrics["test_loss"]
    with pytest.raises(InputError, match="trained on a graph made in memory"):
        resumed.confusion()


def test_tune_and_the_classifier(said: list[str]) -> None:
    found = fastgcn.tune(BARE, trials=1, epochs=2, hidden=4, samples=10)
    assert found.run.source == {"split": "random"}
    classifier = FastGCNClassifier(**quick().to_dict()).fit(BARE)
    assert len(said) == 2
    assert classifier.graph_.split.test.tolist() == DRAWN.split.test.tolist()
    assert classifier.score(BARE) == classifier.score(DRAWN)


def test_networkx_and_pyg_keep_that_a_split_was_drawn() -> None:
    for other in (BARE.to_networkx(), BARE.to_pyg()):
        run = fit(other, quick())
        assert run.source == {"split": "random"}
        assert len(run.history) == quick().epochs


@pytest.mark.parametrize(
    ("graph", "match"),
    [
        (communities(labels=None, split=split_of()), "has no labels, and training needs them"),
        (communities(split=split_of(val=[1])), "has no training nodes; give it a split"),
    ],
)
def test_what_has_no_split_to_draw(graph: Graph, match: str, said: list[str]) -> None:
    with pytest.raises(InputError, match=match):
        fit(graph, quick())
    assert not said


def test_evaluate_uses_the_split_of_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not that of the data, whose test nodes are training nodes of the run."""
    run = fit(random_split(fastgcn.load("digits"), seed=5), quick(), run_dir=tmp_path / "run")
    outcome = run_cli(capfd, "evaluate", tmp_path / "run", "--json")
    assert json.loads(outcome.out)["loss"] == pytest.approx(run.metrics["test_loss"], rel=1e-6)


def test_a_split_of_ones_own_is_no_longer_that_of_the_data() -> None:
    """Else `fastgcn evaluate RUN` would load the split of the data, and test on training nodes."""
    graph = fastgcn.load("digits")
    drawn = random_split(graph, seed=5)
    assert drawn.source == {"data": "digits", "split": "random", "seed": 5}
    assert fastgcn.load("digits", split="random", seed=5).source == drawn.source
    assert graph.with_split(Split(train=graph.split.val)).source is None
