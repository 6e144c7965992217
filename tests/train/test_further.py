"""A run is saved, looked at, extended, and started from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn import Run, fit, load, predict, resume, save
from fastgcn.errors import InputError
from tests.cli_runner import run_cli
from tests.communities import communities, weights_of

QUICK: dict[str, Any] = {
    "preset": "fast", "device": "cpu", "threads": 1, "early_stopping": "none",
}  # fmt: skip


def test_a_finished_run_is_extended_as_if_it_had_never_ended(tmp_path: Path) -> None:
    graph = communities()
    fit(graph, run_dir=tmp_path / "run", epochs=3, **QUICK)
    longer = resume(tmp_path / "run", graph, epochs=6)
    whole = fit(graph, epochs=6, **QUICK)
    assert len(longer.history) == longer.config.epochs == 6
    assert weights_of(longer.model) == weights_of(whole.model)
    assert Run.load(tmp_path / "run").metrics["epochs"] == 6
    with pytest.raises(InputError, match="has 6 epochs already; give more, got 6"):
        resume(tmp_path / "run", graph, epochs=6)


def test_an_interrupted_run_is_continued_before_it_is_extended(tmp_path: Path) -> None:
    def stop(_: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(communities(), run_dir=tmp_path / "run", epochs=3, callbacks=[stop], **QUICK)
    with pytest.raises(InputError, match="is not finished; continue it first"):
        resume(tmp_path / "run", communities(), epochs=9)


def test_a_run_that_early_stopping_has_ended_is_not_extended(tmp_path: Path) -> None:
    stopping = QUICK | {"early_stopping": "patience", "patience": 1}
    run = fit(communities(), run_dir=tmp_path / "run", epochs=60, **stopping)
    assert len(run.history) < 60
    with pytest.raises(InputError, match="early stopping has ended"):
        resume(tmp_path / "run", communities(), epochs=90)
    assert len(Run.load(tmp_path / "run").history) == len(run.history)


def test_the_command_extends_a_run_and_starts_from_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save(communities(), tmp_path / "store")
    graph = load(str(tmp_path / "store"))
    first = fit(graph, run_dir=tmp_path / "run", epochs=3, **QUICK)
    ended = run_cli(capfd, "train", "--resume", tmp_path / "run", "--epochs", "5", "--json")
    assert ended.code == 0, ended.err
    assert len(Run.load(tmp_path / "run").history) == 5
    again = run_cli(
        capfd, "train", tmp_path / "store", "--from", tmp_path / "run", "--epochs", "1",
        "--learning-rate", "1e-9", "--run-dir", tmp_path / "next", "--json",
    )  # fmt: skip
    assert again.code == 0, again.err
    run, begun = Run.load(tmp_path / "next"), Run.load(tmp_path / "run")
    assert run.config.hidden == first.config.hidden
    for new, old in zip(run.model.parameters(), begun.model.parameters(), strict=True):
        np.testing.assert_allclose(new.detach(), old.detach(), atol=1e-6)
    refused = run_cli(capfd, "train", "--resume", tmp_path / "run", "--hidden", "3")
    assert refused.code == 1
    assert "leave out --hidden" in refused.err


def test_a_run_is_saved_and_shown(tmp_path: Path) -> None:
    graph = communities()
    run = fit(graph, epochs=3, **QUICK)
    saved = run.save(tmp_path / "run")
    assert saved.path == tmp_path / "run"
    loaded = Run.load(tmp_path / "run")
    np.testing.assert_array_equal(predict(loaded, graph), predict(run, graph))
    assert loaded.history == run.history
    with pytest.raises(InputError, match="holds a run already"):
        run.save(tmp_path / "run")
    with pytest.raises(InputError, match="no state to continue from"):
        resume(tmp_path / "run", graph, epochs=9)
    assert "3 kept" in repr(run)
    assert len(repr(run)) < 400
    run.metrics["notes"] = ["<b> & co"]
    assert "&lt;b&gt; &amp; co" in run._repr_html_()


def test_the_history_is_a_data_frame() -> None:
    pytest.importorskip("pandas")
    run = fit(communities(), epochs=3, **QUICK)
    frame = run.history_frame()
    assert list(frame.index) == [1, 2, 3]
    assert frame.train_loss.tolist() == [record["train_loss"] for record in run.history]
