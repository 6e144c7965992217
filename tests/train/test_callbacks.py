"""Callbacks: told of the start, the epochs and the end; stopping, keeping weights, loggers."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

import fastgcn
from fastgcn import Callback, EarlyStop, KeepWeights, fit
from fastgcn.errors import InputError, MissingDependencyError
from fastgcn.train.loggers import MLflowLogger, WandbLogger
from fastgcn.train.training import Training
from tests.cli_runner import run_cli
from tests.communities import communities, quick


class Told(Callback):
    """Writes down what it is told."""

    def __init__(self, stop: type[BaseException] | None = None) -> None:
        self.seen: list[Any] = []
        self.stop = stop

    def start(self, training: Training, earlier: Sequence[Mapping[str, Any]]) -> None:
        self.seen.append(("start", training.config.hidden, len(earlier)))

    def __call__(self, record: dict[str, Any]) -> None:
        self.seen.append(record["epoch"])
        if self.stop is not None and record["epoch"] == 2:
            raise self.stop

    def end(self, run: fastgcn.Run | None) -> None:
        self.seen.append(("end", None if run is None else run.metrics["epochs"]))


def test_a_callback_is_told_of_start_epochs_and_end() -> None:
    told = Told()
    fit(communities(), quick(epochs=3), callbacks=[told])
    assert told.seen == [("start", 8, 0), 1, 2, 3, ("end", 3)]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_training_ends_without_a_run_and_goes_on(
    stop: type[BaseException], tmp_path: Path
) -> None:
    told, again = Told(stop), Told()
    with pytest.raises(stop):
        fit(communities(), quick(epochs=4), callbacks=[told], run_dir=tmp_path / "r")
    assert told.seen == [("start", 8, 0), 1, 2, ("end", None)]
    if stop is KeyboardInterrupt:
        fastgcn.resume(tmp_path / "r", communities(), callbacks=[again])
        assert again.seen == [("start", 8, 2), 3, 4, ("end", 4)]


def test_early_stop_watches_another_number() -> None:
    class Flat(EarlyStop):
        def __call__(self, record: dict[str, Any]) -> bool:
            return super().__call__(record | {"train_loss": max(record["train_loss"], 100.0)})

    stop = Flat("train_loss", patience=3)
    run = fit(communities(), quick(epochs=30, early_stopping="none"), callbacks=[stop])
    assert len(run.history) == 4  # the first is the best, and three follow
    with pytest.raises(InputError, match="'val_losss', which the epochs do not have; did you mean"):
        fit(communities(), quick(epochs=2), callbacks=[EarlyStop("val_losss")])


def test_early_stop_goes_on_after_a_resume() -> None:
    class Backend:
        validate_every = 1

    class Resumed:
        backend = Backend()

    stop = EarlyStop("val_micro_f1", patience=2, min_delta=0.1)
    earlier = [{"epoch": 1, "val_micro_f1": 0.5}, {"epoch": 2, "val_micro_f1": 0.55}]
    stop.start(Resumed(), earlier)  # type: ignore[arg-type]
    assert stop({"epoch": 3, "val_micro_f1": 0.58})


def test_weights_are_kept(tmp_path: Path) -> None:
    keep = KeepWeights(tmp_path / "w", every=2, last=2)
    run = fit(communities(), quick(epochs=6, early_stopping="none"), callbacks=[keep])
    names = sorted(path.name for path in (tmp_path / "w").iterdir())
    assert names == ["epoch-00004.safetensors", "epoch-00006.safetensors"]
    with safe_open(str(tmp_path / "w" / names[1]), "pt") as file:
        assert set(file.keys()) == set(run.model.state_dict())
    (tmp_path / "f").touch()
    with pytest.raises(InputError, match="weights need a folder"):
        fit(communities(), quick(epochs=1), callbacks=[KeepWeights(tmp_path / "f")])


@pytest.mark.filterwarnings("ignore")  # MLflow's own, about SQLAlchemy
def test_mlflow_has_the_numbers(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/m.db"
    log = MLflowLogger(uri, name="mine")
    run = fit(communities(), quick(epochs=2), callbacks=[log])
    client = mlflow.MlflowClient(tracking_uri=uri)
    kept = client.get_run(log.run_id)
    assert (kept.info.status, kept.info.run_name) == ("FINISHED", "mine")
    assert kept.data.params["hidden"] == "8"
    assert kept.data.metrics["test_micro_f1"] == run.metrics["test_micro_f1"]
    history = client.get_metric_history(log.run_id, "train_loss")
    assert [(each.step, each.value) for each in history] == [
        (record["epoch"], record["train_loss"]) for record in run.history
    ]
    with pytest.raises(InputError, match="MLflow cannot log to"):
        MLflowLogger("nonsense://x")


@pytest.mark.filterwarnings("ignore")
def test_wandb_has_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    log = WandbLogger(mode="offline", folder=tmp_path, name="mine")
    seen: dict[str, Any] = {}

    class Look(Callback):
        def end(self, run: fastgcn.Run | None) -> None:  # noqa: ARG002
            seen.update(config=dict(log.run.config), summary=dict(log.run.summary))

    run = fit(communities(), quick(epochs=2), callbacks=[Look(), log])
    assert seen["config"]["hidden"] == 8
    losses = [pytest.approx(record["val_loss"]) for record in run.history]
    assert seen["summary"]["val/loss"] in losses
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    with pytest.raises(InputError, match="mode must be"):
        WandbLogger(mode="of")  # type: ignore[arg-type]


@pytest.mark.parametrize(("module", "make"), [("mlflow", MLflowLogger), ("wandb", WandbLogger)])
def test_a_package_that_is_not_installed(
    module: str, make: type[Callback], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'fastgcn\[{module}\]'"):
        make()


def test_the_flag(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    few = ("train", "digits", "--epochs", 1, "--run-dir", "r", "--json")
    outcome = run_cli(capfd, *few, "--log", "tensorboard")
    assert outcome.code == 0, outcome.err
    assert list((tmp_path / "r" / "tensorboard").iterdir())
    wrong = run_cli(capfd, *few, "--log", "mlfow")
    assert (wrong.code, "mlflow" in wrong.err, wrong.err.count("\n")) == (1, True, 1)
