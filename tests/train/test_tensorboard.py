"""Training curves are written for TensorBoard, and read back with its own reader."""

import builtins
from pathlib import Path
from typing import Any

import pytest

from fastgcn import fit
from fastgcn.errors import InputError, MissingDependencyError
from fastgcn.train.loggers import TensorBoardLogger
from tests.communities import communities, quick

Curves = dict[str, list[tuple[int, float]]]


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("tensorboard")


def read(folder: Path) -> Curves:
    """(step, value) by tag, in the order shown."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_a_run_is_read_back(tmp_path: Path) -> None:
    with TensorBoardLogger(tmp_path / "logs") as log:
        run = fit(communities(), quick(), callbacks=[log])
    curves = read(tmp_path / "logs")
    tags = {
        "train_loss": "train/loss",
        "val_micro_f1": "val/micro_f1",
        "val_loss": "val/loss",
        "empty_rows": "empty_rows",
        "seconds_per_batch": "seconds_per_batch",
    }
    for name, tag in tags.items():
        assert [step for step, _ in curves[tag]] == [1, 2, 3]
        values = [value for _, value in curves[tag]]
        assert values == pytest.approx([record[name] for record in run.history]), tag
    assert "epoch" not in curves


def test_a_resumed_run_shows_one_curve(tmp_path: Path) -> None:
    """A kill after epoch 5 and a checkpoint at epoch 3: epochs 4 and 5 are written again."""
    for epochs, loss in ((range(1, 6), 1.0), (range(4, 8), 2.0)):
        with TensorBoardLogger(tmp_path) as log:
            for epoch in epochs:
                log({"epoch": epoch, "train_loss": loss})
    curve = read(tmp_path)["train/loss"]
    assert curve == [(epoch, 1.0 if epoch < 4 else 2.0) for epoch in range(1, 8)]


def test_flushed_records_can_be_read_while_training(tmp_path: Path) -> None:
    log = TensorBoardLogger(tmp_path)
    log.flush()  # nothing yet, and nothing to go wrong
    log({"epoch": 1, "train_loss": 3.0})
    log.flush()
    assert read(tmp_path) == {"train/loss": [(1, 3.0)]}
    log.close()
    log.close()


def test_without_tensorboard_the_way_to_get_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return usual(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"pip install 'fastgcn\[tensorboard\]'"):
        TensorBoardLogger(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file is a file; TensorBoard's events need a folder"):
        TensorBoardLogger(tmp_path / "file")


def test_epochs_without_validation_leave_gaps(tmp_path: Path) -> None:
    with TensorBoardLogger(tmp_path) as log:
        fit(communities(), quick(epochs=5, validate_every=2), callbacks=[log])
    curves = read(tmp_path)
    assert [step for step, _ in curves["train/loss"]] == [1, 2, 3, 4, 5]
    assert [step for step, _ in curves["val/loss"]] == [2, 4, 5]
