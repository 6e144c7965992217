"""What a notebook shows: progress, notes, a picture of the training, a table of confusions."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fastgcn
import fastgcn.progress
from fastgcn.errors import InputError
from fastgcn.train.race import Tried
from tests.communities import communities

FAST: dict[str, Any] = {
    "preset": "fast",
    "epochs": 4,
    "hidden": 8,
    "samples": 40,
    "batch_size": 64,
    "seed": 0,
}


@pytest.fixture(autouse=True)
def _as_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that other tests run in this process switch lines on."""
    monkeypatch.setattr(fastgcn.progress, "_plain", False)
    monkeypatch.setattr(fastgcn.progress, "_silent", False)


@pytest.fixture(scope="module")
def graph() -> fastgcn.Graph:
    return communities()


@pytest.fixture(scope="module")
def run(graph: fastgcn.Graph) -> fastgcn.Run:
    return fastgcn.fit(graph, **FAST)


def test_training_is_quiet_unless_told(
    graph: fastgcn.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    fastgcn.fit(graph, **FAST)
    fastgcn.fit(graph, progress=False, **FAST)
    assert capsys.readouterr() == ("", "")
    fastgcn.fit(graph, progress=True, **FAST)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"^epoch 1: loss \d\.\d{4}  val F1 \d\.\d{4}", err, re.MULTILINE)
    assert "epoch 4: loss" in err, "whoever saw a beginning sees the end"
    fastgcn.fit(graph, **FAST)
    assert capsys.readouterr() == ("", ""), "it is quiet again afterwards"


def test_progress_is_quiet_again_after_an_error(
    graph: fastgcn.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError):
        fastgcn.fit(graph, progress=True, epochs=0)
    with pytest.raises(InputError, match="progress must be True, False or None, got 'yes'"):
        fastgcn.fit(graph, progress="yes")  # type: ignore[arg-type]
    assert not fastgcn.progress.visible()
    assert capsys.readouterr().err == ""


def test_a_notebook_sees_notes_but_not_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fastgcn.progress.note("Not seen.")
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    fastgcn.progress.note("Seen.")
    with fastgcn.progress.progress("Sorting", 2) as advance:
        advance(2)
    with fastgcn.progress.shown(False):
        fastgcn.progress.note("Not seen.")
    assert capsys.readouterr().err == "Seen.\n"


def test_the_choices_of_a_run_are_shown_with_its_progress(
    graph: fastgcn.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    fastgcn.fit(graph, progress=True, epochs=20, hidden=8)
    assert "Settings: " in capsys.readouterr().err


def test_a_picture_of_the_training(run: fastgcn.Run, tmp_path: Path) -> None:
    picture = run.plot()
    page = picture._repr_html_()
    assert page.count("<svg ") == 2
    assert "Loss by epoch" in page
    assert "Validation micro-F1 by epoch" in page
    assert f"kept: epoch {run.metrics['best_epoch']}" in page
    picture.save(tmp_path / "training.svg")
    svg = (tmp_path / "training.svg").read_text()
    assert svg.count("<svg ") == 3
    picture.save(tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="saved as .png or .svg, got 'training.jpg'"):
        picture.save(tmp_path / "training.jpg")


def test_the_picture_has_the_metric_and_the_race(run: fastgcn.Run) -> None:
    from dataclasses import asdict, replace

    history = [{**record, "val_roc_auc": 0.5 + record["epoch"] / 10} for record in run.history]
    tried = [asdict(Tried(name, 3, 0.9, 0.1, 0.7, name == "b", "roc_auc", 0.75)) for name in "ab"]
    metrics = {**run.metrics, "metric": "roc_auc", "choice": {"why": "", "tried": tried}}
    page = replace(run, history=history, metrics=metrics).plot()._repr_html_()
    assert "Validation ROC-AUC by epoch" in page
    assert "b, 3 epochs (chosen)" in page
    assert "a, 3 epochs" in page
    assert "ROC-AUC of the validation nodes" in page


def test_a_run_of_one_epoch_has_no_picture(graph: fastgcn.Graph) -> None:
    with pytest.raises(InputError, match="a run of one epoch has no curve"):
        fastgcn.fit(graph, **FAST | {"epochs": 1}).plot()


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_confusions_are_those_of_the_predictions(
    graph: fastgcn.Graph, run: fastgcn.Run, part: str
) -> None:
    frame = run.confusion(graph, part)
    nodes = dict(graph.split.items())[part]
    assert graph.labels is not None
    assert run.class_names is not None
    guess = fastgcn.predict(run, graph, part).argmax(1)
    for i, true in enumerate(run.class_names):
        for j, predicted in enumerate(run.class_names):
            count = np.sum((graph.labels[nodes] == i) & (guess == j))
            assert frame.loc[true, predicted] == count
    assert frame.index.name == "class"
    assert frame.columns.name == "predicted"
    assert frame.to_numpy().sum() == len(nodes)


def test_confusions_load_the_graph_again(tmp_path: Path, graph: fastgcn.Graph) -> None:
    fastgcn.save(graph, tmp_path / "store")
    loaded = fastgcn.load(tmp_path / "store")
    run = fastgcn.fit(loaded, **FAST)
    assert run.confusion().equals(run.confusion(loaded, "test"))
    with pytest.raises(InputError, match="this run was trained on a graph made in memory"):
        fastgcn.fit(graph, **FAST).confusion()


def test_confusions_that_do_not_exist_are_refused(graph: fastgcn.Graph, run: fastgcn.Run) -> None:
    with pytest.raises(InputError, match="one of train, val, test, got 'tset'; did you mean"):
        run.confusion(graph, "tset")
    several = communities(multilabel=True)
    with pytest.raises(InputError, match="several labels for a node has no confusions"):
        fastgcn.fit(several, **FAST).confusion(several)
