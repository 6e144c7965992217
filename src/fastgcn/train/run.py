"""A run and its folder: config, metrics, weights, resume state; files are replaced atomically."""

import copy
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from fastgcn.aggregators import AggregatorNetwork
from fastgcn.backends.base import Checkpoint, with_prefix
from fastgcn.config import TrainConfig
from fastgcn.data.load import load_again
from fastgcn.data.manifest import checksum
from fastgcn.errors import FormatError, InputError, MissingFileError
from fastgcn.files import dumps, open_regular, parse_json, with_nan
from fastgcn.locks import Lock
from fastgcn.metrics import Decision
from fastgcn.model import all_finite, build_model, own_network
from fastgcn.network import Network, OwnNetwork
from fastgcn.progress import note
from fastgcn.schema import read_any, read_checked, validate
from fastgcn.train.run_files import (
    ABOUT,
    NETWORK,
    PROGRESS,
    RESULT,
    check_epoch,
    check_network,
    check_result,
    has_checksum,
    model_metadata,
    network_task,
    parsed,
    read_safetensors,
    safetensors_bytes,
)
from fastgcn.train.training import best_epoch
from fastgcn.writing import explained, sync, write_bytes, write_text

if TYPE_CHECKING:
    import pandas

    from fastgcn.graph.graph import Graph
    from fastgcn.infer.explain import Explanation
    from fastgcn.report.notebook import Picture

# Runs that predict numbers have the second schema, which earlier versions refuse.
SCHEMAS = (1, 2)


_PARTS = ("val", "test")


@dataclass(slots=True, repr=False)
class Run:
    """A training run: what was trained, how, and how good it is.

    Attributes:
        model: the network with the weights of the best validation epoch.
        config: the settings.
        history: one record per epoch: train_loss, seconds, ...; val_loss, val_micro_f1, ... if
            it was validated.
        metrics: final scores and times by name.
        class_names: the classes of the model's outputs, None if they have only numbers.
        feature_names: the features of the model's inputs, None if they have only numbers.
        fingerprint: of the graph it was trained on.
        source: what that graph was loaded from (`Graph.source`); without "data", or None, if it
            was made in memory.
        imported: how that graph's tables were read and encoded (`fastgcn.data.imported`); None if
            it came from no tables.
        path: the run's folder, None if it has none.
    """

    model: Network
    config: TrainConfig
    history: list[dict[str, Any]]
    metrics: dict[str, Any]
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    fingerprint: str = ""
    source: Mapping[str, Any] | None = None
    imported: Mapping[str, Any] | None = None
    path: Path | None = None

    @staticmethod
    def load(path: str | os.PathLike[str], *, model: nn.Module | None = None) -> "Run":
        """A run from its folder; of one that diverged, was interrupted or is still in training,
        the best epoch so far.

        If the run trained a network of your own, pass a module of the same shapes as `model`: a
        copy of it gets the weights.
        """
        return RunFolder.open(Path(path)).load(model)

    def save(self, folder: str | os.PathLike[str]) -> "Run":
        """Write the run to a new folder, from which `Run.load` and every command read it.

        A copy without a state: it cannot be continued, but a new run can start from it.
        """
        about = {
            "config": self.config.to_dict(),
            "data": None if self.source is None else dict(self.source),
            "fingerprint": self.fingerprint,
            "imported": self.imported,
            **module_name(self.model),
            **({"task": self.model.task} if self.model.task == "regression" else {}),
        }
        target = RunFolder.create(Path(folder), about)
        try:
            target.write_history(self.history)
            target.finish(self)
        finally:
            target.release()
        return replace(self, path=target.path)

    def history_frame(self) -> "pandas.DataFrame":
        """The history as a data frame, a row for each epoch."""
        try:
            import pandas
        except ImportError:
            raise InputError("history_frame() needs pandas; run.history is a list") from None
        return pandas.DataFrame(self.history).set_index("epoch")

    def plot(self) -> "Picture":
        """The loss and the validation score by epoch, and the race (`fastgcn.plot`)."""
        import fastgcn  # pictures are made above this module

        return fastgcn.plot(self)

    def confusion(self, graph: "Graph | None" = None, part: str = "test") -> "pandas.DataFrame":
        """How many nodes of each class are predicted as each class (`fastgcn.confusion`).

        Without a graph, the one that the run was trained on is loaded again.
        """
        import fastgcn  # predictions are made above this module

        if graph is None:
            graph = load_again(self.source, "this run" if self.path is None else self.path)
        return fastgcn.confusion(self, graph, part)

    def explain(self, graph: "Graph", node: Any, **options: Any) -> "Explanation":
        """Which features and neighbours made the prediction for a node: `fastgcn.explain`."""
        # It lies above this module; its name is looked up when it is called.
        module = import_module("fastgcn.infer.explain")
        return cast("Explanation", module.explain(self, graph, node, **options))

    @property
    def kept(self) -> str:
        """What the model is, in words: the epoch, and how many networks."""
        of = f"epoch {self.metrics.get('best_epoch')} of {self.metrics.get('epochs')}"
        k = self.model.ensemble
        return f"{of} kept" + (f", in the first of {k} networks" if k > 1 else "")

    def __repr__(self) -> str:
        return f"Run({', '.join(f'{name}={value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        """A table of scores and choices, for notebooks."""
        notes = self.metrics.get("notes", [])
        rows = [*self._facts().items(), *(("note", sentence) for sentence in notes)]
        cells = (f"<tr><th>{escape(n)}</th><td>{escape(str(v))}</td></tr>" for n, v in rows)
        return f"<table>{''.join(cells)}</table>"

    def _facts(self) -> dict[str, Any]:
        """What a person wants to see first."""
        found = self.metrics
        metric = found.get("metric", "micro_f1")
        shown = (f"{part}_{name}" for name in (metric, "micro_f1", "loss") for part in _PARTS)
        names = dict.fromkeys(shown)
        facts: dict[str, Any] = {
            "dataset": found.get("dataset"),
            "method": self.config.method,
            "kept": self.kept,
        }
        facts |= {name: f"{found[name]:.4f}" for name in names if found.get(name) is not None}
        return facts | {"path": None if self.path is None else str(self.path)}

    @property
    def stopped(self) -> str | None:
        """Why training has not come to its end; None for a finished run."""
        return self.metrics.get("stopped")


@dataclass(slots=True)
class RunFolder:
    """The files of one run.

    `config.json` (settings, data, fingerprint), `metrics.jsonl` (a line an epoch),
    `state.safetensors` (for resuming), and once training has ended `model.safetensors` and
    `result.json`, which says under `stopped` if the run diverged and so is not finished.
    The process that trains has the lock `.lock` until it calls `release`; a second one is
    refused. Readers take no lock: every file is replaced as a whole.
    """

    path: Path
    about: dict[str, Any] = field(default_factory=dict)
    lock: Lock | None = None
    network: dict[str, Any] | None = None  # what a checkpoint has beside its tensors

    @classmethod
    def create(cls, path: Path, about: dict[str, Any]) -> "RunFolder":
        """A new folder for a run, which this process writes."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise _in_the_way(path) from None
        schema = SCHEMAS[about.get("task") == "regression"]
        folder = cls(path, {"schema": schema, **about})
        try:
            folder.claim()
            if (path / "config.json").exists():
                raise folder._taken()
            write_text(path / "config.json", json.dumps(folder.about, indent=1, ensure_ascii=False))
        except BaseException:
            folder.release()
            if not any(path.iterdir()):
                path.rmdir()
            raise
        return folder

    @classmethod
    def check_free(cls, path: Path) -> None:
        """Refuse a folder that holds a run already, as `create` would after a race."""
        if path.exists() and not path.is_dir():
            raise _in_the_way(path)
        if (path / "config.json").exists():
            folder = cls(path)
            folder.claim().release()  # if another process is training it, that is said
            raise folder._taken()

    def _taken(self) -> InputError:
        return InputError(
            f"{self.path} holds a run already; continue it with --resume {self.path} "
            "(fastgcn.resume in Python), or choose another folder"
        )

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        file = path / "config.json"
        about = read_any(file, f"{path} is not a run: it has no config.json")
        if not isinstance(about, dict) or about.get("schema") not in SCHEMAS:
            raise FormatError(
                f"{path} is not a run of this version's schemas ({SCHEMAS[0]} and {SCHEMAS[1]})"
            )
        validate(about, ABOUT, file, "train again")
        return cls(path, about)

    def claim(self) -> "RunFolder":
        """Take the run's lock, as the one process that writes it; a `BusyError` names another."""
        lock = Lock(self.path / ".lock")
        lock.take(str(self.path))
        self.lock = lock
        return self

    def release(self) -> None:
        """Let other processes write the run."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def discard_if_unused(self) -> None:
        """Remove the folder of a run that was refused before its first epoch, and release it."""
        if self.lock is not None and not (self.path / "metrics.jsonl").exists():
            self.discard()
        self.release()

    def discard(self) -> None:
        """Remove and release a run without an epoch worth keeping; other files there stay."""
        for name in ("config.json", "metrics.jsonl", "state.safetensors"):
            (self.path / name).unlink(missing_ok=True)
        self.release()
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    @property
    def config(self) -> TrainConfig:
        return _settings(self.about["config"], self.path / "config.json")

    @classmethod
    def to_resume(cls, path: Path) -> "RunFolder":
        """As `open`; refuses a run that has stopped because its numbers went wrong."""
        folder = cls.open(path)
        if folder.stopped is not None:
            raise InputError(f"{path} cannot be continued: {folder.stopped}, and start a new run")
        return folder

    def extend(self, epochs: int) -> None:
        """Let a finished run train on, up to so many epochs: it counts as interrupted again.

        Its lock must be taken (`claim`).
        """
        done = self._read_result()["epochs"]
        if epochs <= done:
            raise InputError(f"{self.path} has {done} epochs already; give more, got {epochs}")
        if not (self.path / "state.safetensors").exists():
            raise InputError(
                f"{self.path} has no state to continue from; start a new run from its weights "
                f"with: fastgcn train DATA --from {self.path}"
            )
        self.about["config"] = self.config.replace(epochs=epochs).to_dict()
        text = json.dumps(self.about, indent=1, ensure_ascii=False)
        write_text(self.path / "config.json", text, remedy=self._remedy)
        for name in ("result.json", "model.safetensors"):
            (self.path / name).unlink(missing_ok=True)

    @property
    def has_model(self) -> bool:
        """True if training has ended, in whatever way."""
        return (self.path / "result.json").exists()

    @property
    def stopped(self) -> str | None:
        """Why the run has stopped before its end; None if it has not."""
        return self._read_result().get("stopped") if self.has_model else None

    @property
    def finished(self) -> bool:
        return self.has_model and self.stopped is None

    @property
    def _remedy(self) -> str:
        return f"free some space, then continue with: fastgcn train --resume {self.path}"

    def write_history(self, history: list[dict[str, Any]]) -> None:
        lines = "".join(dumps(record) + "\n" for record in history)
        write_text(self.path / "metrics.jsonl", lines, remedy=self._remedy)

    def append_history(self, record: dict[str, Any]) -> None:
        path = self.path / "metrics.jsonl"
        with explained(path, self._remedy), path.open("a", encoding="utf-8") as file:
            file.write(dumps(record) + "\n")

    def read_history(self, epochs: int) -> list[dict[str, Any]]:
        """The first `epochs` records; a kill may have left later ones incomplete."""
        path = self.path / "metrics.jsonl"
        try:
            with open_regular(path) as file:
                lines = file.read().splitlines()[:epochs]
            records = [parse_json(line) for line in lines]
        except FileNotFoundError:
            raise MissingFileError(f"{path} is missing") from None
        except ValueError as error:
            raise FormatError(f"{path} is damaged: {error}") from None
        if len(records) < epochs:
            raise FormatError(f"{path} is damaged: it has {len(records)} epochs of {epochs}")
        for number, record in enumerate(records, 1):
            check_epoch(record, number, path)
        return [with_nan(record) for record in records]

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write what resuming needs; the history up to here reaches the disk before it."""
        sync(self.path / "metrics.jsonl")
        metadata = {"progress": json.dumps(checkpoint.progress)}
        if self.network is not None:
            metadata["network"] = json.dumps(self.network)
        data = safetensors_bytes(checkpoint.tensors, metadata)
        write_bytes(self.path / "state.safetensors", data, remedy=self._remedy)

    def load_checkpoint(self) -> Checkpoint | None:
        """What resuming needs; `network` becomes that of the file, if it has one."""
        path = self.path / "state.safetensors"
        if not path.exists():
            return None
        tensors, metadata = read_safetensors(path, ("progress",))
        if "network" in metadata:
            self.network = parsed(metadata["network"], "network", NETWORK, path)
            own = "model" in self.about
            check_network(self.network, path.stat().st_size, path, own=own)
        return Checkpoint(tensors, parsed(metadata["progress"], "progress", PROGRESS, path))

    def finish(self, run: Run) -> None:
        """Write the model, then the result, which marks the run as finished or stopped."""
        model = run.model
        described = {
            "config": run.config.to_dict(),
            **describe(model, run.class_names, run.feature_names),
        }
        metadata = {name: json.dumps(value) for name, value in described.items()}
        schema = SCHEMAS[model.task == "regression"]
        metadata |= {"schema": str(schema), "fingerprint": run.fingerprint}
        tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
        data = safetensors_bytes(tensors, metadata)
        write_bytes(self.path / "model.safetensors", data, remedy=self._remedy)
        sums = {name: checksum(self.path / name) for name in _SUMMED}
        result = dumps({**run.metrics, "files": sums}, indent=1)
        write_text(self.path / "result.json", result, remedy=self._remedy)

    def verify(self) -> bool:
        """Compare all checksums; False if a file has none, as in runs of earlier versions."""
        verified = True
        for name in ("model.safetensors", "state.safetensors"):
            if (self.path / name).exists():
                verified &= has_checksum(self.path / name)
        if (self.path / "result.json").exists():
            self.load()
            sums = read_any(self.path / "result.json", "").get("files", {})
            for name in _SUMMED:
                if name in sums and checksum(self.path / name) != sums[name]:
                    raise FormatError(f"{self.path / name} is damaged: its checksum has changed")
            verified &= all(name in sums for name in _SUMMED)
        return verified

    def scores(self) -> tuple[list[dict[str, Any]], str]:
        """The history of a finished run, and the metric that chose its best epoch."""
        result = self._read_result()
        return self.read_history(result["epochs"]), result.get("metric", "micro_f1")

    def check_module(self, module: nn.Module | None) -> None:
        """Refuse a run of a user's network without that network, and the other way round."""
        own = self.about.get("model")
        if own is not None and module is None:
            raise InputError(
                f"{self.path} has a network of your own, {own}, which its folder does not hold; "
                f"load it in Python with fastgcn.Run.load({str(self.path)!r}, model={own}(...))"
            )
        if own is None and module is not None:
            raise InputError(f"{self.path} has a network of fastgcn's own; load it without `model`")

    def load(self, module: nn.Module | None = None) -> Run:
        self.check_module(module)
        if not self.has_model:
            return self._best_so_far(module)
        path = self.path / "model.safetensors"
        tensors, metadata = read_safetensors(
            path, ("config", "class_names", "sizes", "multilabel", "fingerprint")
        )
        about = model_metadata(metadata, path.stat().st_size, path, own="model" in self.about)
        config = _settings(about["config"], path)
        result = self._read_result()
        run = self._run(config, tensors, about, result, path, module)
        check_result(result, about["sizes"][-1], self.path / "result.json")
        if "stopped" in result:
            note(
                f"{self.path} is not a finished run: {result['stopped']}; epoch "
                f"{result.get('best_epoch')}, the best before that, is used"
            )
        return replace(run, fingerprint=metadata["fingerprint"])

    def _run(
        self,
        config: TrainConfig,
        tensors: dict[str, Tensor],
        about: Mapping[str, Any],
        result: dict[str, Any],
        path: Path,
        module: nn.Module | None = None,
    ) -> Run:
        """A run with weights from the file `path`, whose network is described by `about`."""
        model = self._network(config, about, module)
        if module is not None:
            _check_shapes(model, tensors, path)
        try:
            model.load_state_dict(tensors)
            model.decision = Decision(**about["decision"])
        except (TypeError, ValueError, RuntimeError) as error:
            raise FormatError(f"{path} is damaged: {' '.join(str(error).split())}") from None
        if not all_finite(tensors.values()):
            raise FormatError(
                f"{path} has weights that are not finite, because its training diverged; train "
                "again with a lower learning_rate or with scaled features"
            )
        return Run(
            model=model.eval(),
            config=config,
            history=self.read_history(result["epochs"]),
            metrics=result,
            class_names=about["class_names"] and tuple(about["class_names"]),
            feature_names=about["feature_names"] and tuple(about["feature_names"]),
            fingerprint=self.about["fingerprint"],
            source=self.about["data"],
            imported=self.about.get("imported"),
            path=self.path,
        )

    def _network(
        self, config: TrainConfig, about: Mapping[str, Any], module: nn.Module | None
    ) -> Network:
        sizes, task = about["sizes"], network_task(about)
        if module is None:
            return build_model(config, sizes, task, ensemble=about.get("ensemble", 1))
        inner = module.module if isinstance(module, OwnNetwork) else module
        return own_network(copy.deepcopy(inner), config, sizes, task)

    def _best_so_far(self, module: nn.Module | None) -> Run:
        """The best epoch of a run that is still in training, or was interrupted."""
        checkpoint, network = self.load_checkpoint(), self.network
        how = f"continue it with: fastgcn train --resume {self.path}"
        if network is None or checkpoint is None or not checkpoint.progress["epochs"]:
            raise InputError(f"{self.path} is not finished and has no epoch to use yet; {how}")
        path, progress = self.path / "state.safetensors", checkpoint.progress
        epochs, spent = progress["epochs"], progress["seconds"]
        metric = network["metric"]
        history = self.read_history(epochs)
        best = history[best_epoch(history, metric)]
        why = f"it was interrupted after epoch {epochs}, or is still in training"
        result = {
            **{name: network[name] for name in ("dataset", "metric", "device", "validate_every")},
            "seed": self.config.seed,
            "epochs": epochs,
            "best_epoch": best["epoch"],
            "stopped": why,
            **{name: value for name, value in best.items() if name.startswith("val_")},
            **{f"{purpose}_seconds": seconds for purpose, seconds in spent.items()},
            "seconds_per_batch": best.get("seconds_per_batch", 0.0),
            "batches": progress["batches"],
        }
        tensors = with_prefix(checkpoint.tensors, "best.")
        run = self._run(self.config, tensors, network, result, path, module)
        chosen = "the best" if f"val_{metric}" in best else "the last"
        note(
            f"{self.path} is not finished; epoch {best['epoch']}, {chosen} of the {epochs} so far, "
            f"is used, without calibration; {how}"
        )
        return run

    def _read_result(self) -> dict[str, Any]:
        path = self.path / "result.json"
        result = read_checked(path, RESULT, absent=f"{path} is missing", remedy="train again")
        return {name: with_nan(value) for name, value in result.items() if name != "files"}


def module_name(model: nn.Module | None) -> dict[str, str]:
    """What a run's folder says about a network of the user's own, and of nobody else's."""
    module = model.module if isinstance(model, OwnNetwork) else model
    if module is None or isinstance(module, Network | AggregatorNetwork):
        return {}
    return {"model": type(module).__qualname__}


def _check_shapes(model: Network, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights that are not those of a user's module."""
    have, need = (
        {name.removeprefix("module."): tuple(value.shape) for name, value in each.items()}
        for each in (tensors, model.state_dict())
    )
    if have != need:
        differ = sorted(n for n in have | need if have.get(n) != need.get(n))
        raise InputError(
            f"the module given does not fit {path}: of {differ[0]!r}, the file has "
            f"{have.get(differ[0], 'nothing')} and the module {need.get(differ[0], 'nothing')}"
        )


def _in_the_way(path: Path) -> InputError:
    return InputError(
        f"{path} cannot be a run's folder: a file is in its place; choose another one"
    )


def describe(
    model: Network, class_names: Sequence[str] | None, feature_names: Sequence[str] | None
) -> dict[str, Any]:
    """What a file of weights does not tell about the network, as plain data."""
    return {
        "sizes": list(model.sizes),
        "multilabel": model.multilabel,
        **({"task": model.task} if model.task == "regression" else {}),
        **({"ensemble": model.ensemble} if model.ensemble > 1 else {}),
        "decision": model.decision.to_dict(),
        "class_names": None if class_names is None else list(class_names),
        "feature_names": None if feature_names is None else list(feature_names),
    }


# The files whose checksums `result.json` has. That of `state.safetensors` is in it.
_SUMMED = ("config.json", "metrics.jsonl", "model.safetensors")


def _settings(values: Mapping[str, Any], path: Path) -> TrainConfig:
    """The settings of a run; one that is newer than the run takes its default."""
    try:
        return TrainConfig.from_dict(values).complete()
    except (InputError, TypeError, ValueError) as error:
        raise FormatError(f"{path} is damaged: {' '.join(str(error).split())}") from None
