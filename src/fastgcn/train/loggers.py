"""Loggers: the numbers of each epoch for TensorBoard, MLflow and Weights & Biases.

Each is a callback: `fit(graph, callbacks=[MLflowLogger()])`, or `fastgcn train DATA --log mlflow`.
They need the extra packages `fastgcn[tensorboard]`, `fastgcn[mlflow]` and `fastgcn[wandb]`.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fastgcn.errors import InputError, MissingDependencyError
from fastgcn.train.callbacks import Callback

if TYPE_CHECKING:
    from fastgcn.config import TrainConfig
    from fastgcn.train.run import Run
    from fastgcn.train.training import Training


class TensorBoardLogger(Callback):
    """Writes each epoch's numbers as TensorBoard scalars; pass it to `fit` as one of `callbacks`.

    `train_loss` becomes the scalar `train/loss`, `val_micro_f1` becomes `val/micro_f1`; numbers
    of no part of the split keep their names. The step is the epoch. Logging to the same folder
    again hides its old records from the first new epoch on, so a resumed run shows one curve.

    >>> with TensorBoardLogger("logs") as log:                              # doctest: +SKIP
    ...     fastgcn.fit(graph, config, callbacks=[log])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; TensorBoard's events need a folder")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependencyError(
                "TensorBoard is not installed; pip install 'fastgcn[tensorboard]'"
            ) from error
        self._open: Any = SummaryWriter
        self._writer: Any = None

    def __call__(self, record: dict[str, Any]) -> None:
        """Write the record of one epoch."""
        step = record["epoch"]
        if self._writer is None:
            self._writer = self._open(str(self.folder), purge_step=step)
        for name, value in record.items():
            if name != "epoch":
                self._writer.add_scalar(_tag(name), value, step)

    def flush(self) -> None:
        """Make everything written so far visible to readers."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flush and close; a later record opens the folder again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def end(self, run: "Run | None") -> None:  # noqa: ARG002
        """Write what is left."""
        self.close()


class MLflowLogger(Callback):
    """Logs settings, each epoch's numbers and the final scores as a run of MLflow.

    `uri` is a tracking server or a database; by default `MLFLOW_TRACKING_URI`, or if that is not
    set, `sqlite:///mlflow.db`. Metrics have the names of the records (`val_loss`). An interrupted
    training is marked as killed; a resumed one is another run.

    Attributes:
        run_id: of the run in MLflow, once training has started.
    """

    def __init__(
        self, uri: str | None = None, *, experiment: str = "fastgcn", name: str | None = None
    ) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise MissingDependencyError(
                "MLflow is not installed; pip install 'fastgcn[mlflow]'"
            ) from error
        from mlflow.entities import Metric, Param

        self._metric, self._param = Metric, Param
        uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
        self.experiment, self.name = experiment, name
        self.run_id: str | None = None
        try:
            self._client = mlflow.MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(experiment)
        except Exception as error:
            why = " ".join(str(error).split())
            raise InputError(f"MLflow cannot log to {uri}: {why}") from error
        self._experiment = (
            self._client.create_experiment(experiment) if found is None else found.experiment_id
        )

    def start(self, training: "Training", earlier: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        """Open a run with the settings as its parameters."""
        self.run_id = self._client.create_run(self._experiment, run_name=self.name).info.run_id
        params = [self._param(k, str(v)) for k, v in _settings(training.config).items()]
        self._client.log_batch(self.run_id, params=params)

    def __call__(self, record: dict[str, Any]) -> None:
        """Log the record of one epoch."""
        self._log(record, record["epoch"])

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [
            self._metric(_mlflow_name(k), float(v), now, step) for k, v in _numbers(values).items()
        ]
        assert self.run_id is not None
        self._client.log_batch(self.run_id, metrics=metrics)

    def end(self, run: "Run | None") -> None:
        """Log the final scores and close the run."""
        if self.run_id is None:
            return
        if run is not None:
            self._log(_final(run), run.metrics["best_epoch"])
        self._client.set_terminated(self.run_id, "KILLED" if run is None else "FINISHED")


class WandbLogger(Callback):
    """Logs settings, each epoch's numbers and the final scores as a run of Weights & Biases.

    Without an account, `mode="offline"` (or `WANDB_MODE=offline`) writes files under `folder`,
    which `wandb sync` sends later. Names are those of TensorBoard: `train/loss`, `val/micro_f1`.
    """

    def __init__(
        self,
        project: str = "fastgcn",
        *,
        name: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingDependencyError(
                "Weights & Biases is not installed; pip install 'fastgcn[wandb]'"
            ) from error
        if mode not in (None, "online", "offline", "disabled"):
            raise InputError(f"mode must be online, offline or disabled, got {mode!r}")
        self._wandb = wandb
        self.project, self.name, self.mode = project, name, mode
        self.folder = None if folder is None else Path(folder)
        self.run: Any = None

    def start(self, training: "Training", earlier: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        """Open a run with the settings as its config."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.run = self._wandb.init(
            project=self.project,
            name=self.name,
            config=_settings(training.config),
            dir=None if self.folder is None else str(self.folder),
            mode=self.mode,
            settings=self._wandb.Settings(silent=True),
        )

    def __call__(self, record: dict[str, Any]) -> None:
        """Log the record of one epoch."""
        values = {_tag(name): value for name, value in _numbers(record).items()}
        self.run.log(values, step=record["epoch"])

    def end(self, run: "Run | None") -> None:
        """Write the final scores to the summary and close the run."""
        if self.run is None:
            return
        if run is not None:
            self.run.summary.update(_final(run))
        self.run.finish(exit_code=int(run is None))
        self.run = None


def _tag(name: str) -> str:
    part, _, rest = name.partition("_")
    return f"{part}/{rest}" if part in ("train", "val") else name


def _mlflow_name(name: str) -> str:
    """MLflow allows no % and @ in names; recall@10% becomes recall_at_10_percent."""
    return name.replace("@", "_at_").replace("%", "_percent")


def _settings(config: "TrainConfig") -> dict[str, Any]:
    return config.to_dict()


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """The finite numbers among these, without the epoch's own."""
    return {
        name: value
        for name, value in values.items()
        if name != "epoch"
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


def _final(run: "Run") -> dict[str, Any]:
    """The final scores of a run, under other names than those of its epochs."""
    found = {n: v for n, v in run.metrics.items() if n.startswith(("val_", "test_"))}
    renamed = {f"best_{n}" if n.startswith("val_") else n: v for n, v in found.items()}
    return _numbers(renamed | {"best_epoch": run.metrics["best_epoch"]})
