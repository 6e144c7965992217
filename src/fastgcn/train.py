"""`fit`: the only training loop."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastgcn.config import TrainConfig
from fastgcn.data.layout import fingerprint
from fastgcn.diagnose.auto import resolve_samples
from fastgcn.errors import FormatError, InputError
from fastgcn.graph import Graph
from fastgcn.machine import choose_device, memory_of_device, thread_count
from fastgcn.memory_plan import check_memory
from fastgcn.presets import best_preset
from fastgcn.runs import Checkpoint, Run, RunFolder
from fastgcn.trainer import Trainer
from fastgcn.training_data import check_trainable

if TYPE_CHECKING:
    from fastgcn.distributed.share import Share
    from fastgcn.distributed.team import Team

OnEpoch = Callable[[dict[str, Any]], None]

# Seconds between checkpoints: what a kill can cost at most, beside the epoch under way.
_CHECKPOINT_EVERY = 1.0


def fit(
    graph: Graph,
    config: TrainConfig | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    on_epoch: OnEpoch | None = None,
    share: "Share | None" = None,
) -> Run:
    """Train a network on the training nodes of `graph`; validation chooses the weights kept.

    Without a config, with the best settings known for such a graph. `run_dir` keeps the run on
    disk, where it survives an interruption (`resume`). `on_epoch` is called with the record of
    each epoch. Where several processes train, each is given its `share` of the graph; the first
    of them keeps the run.

    >>> import fastgcn
    >>> run = fastgcn.fit(fastgcn.load("digits"), fastgcn.TrainConfig(epochs=2, samples=50))
    >>> len(run.history)
    2
    """
    config = config or best_preset(graph)
    team = _team(share, config)
    if team is None:
        config = resolve_samples(graph, config)
    folder = None
    if run_dir is not None:
        # Before the folder is made: a refused run leaves nothing behind.
        check_trainable(graph, config)
        if choose_device(config.device).type == "cpu":
            check_memory(graph, config)
        about = {
            "config": config.to_dict(),
            "data": None if graph.source is None else dict(graph.source),
            "fingerprint": fingerprint(graph),
        }
        folder = _on_first(team, lambda: RunFolder.create(Path(run_dir), about))
    return _train(graph, config, folder, on_epoch, team)


def resume(
    run_dir: str | os.PathLike[str],
    graph: Graph,
    *,
    on_epoch: OnEpoch | None = None,
    share: "Share | None" = None,
) -> Run:
    """Continue an interrupted run; on the CPU it ends as it would have uninterrupted.

    Any number of processes can continue it, each given its `share`.
    """
    path = Path(run_dir)
    if share is None:
        folder = RunFolder.open(path)
    else:
        about = share.world.from_first("the run", lambda: RunFolder.open(path).about)
        folder = RunFolder(path, about)
    if folder.finished:
        return folder.load()
    if fingerprint(graph) != folder.about["fingerprint"]:
        raise InputError(
            f"{run_dir} was trained on other data: {graph.name} does not have its fingerprint; "
            "resume with the graph and split the run was started with"
        )
    team = _team(share, folder.config)
    kept = _on_first(team, lambda: folder)
    return _train(graph, folder.config, kept, on_epoch, team)


def _team(share: "Share | None", config: TrainConfig) -> "Team | None":
    if share is None:
        return None
    from fastgcn.distributed.team import Team

    return Team(share, config)


def _on_first(team: "Team | None", make: Callable[[], RunFolder]) -> RunFolder | None:
    """The folder of a run; where several processes train, only the first has it."""
    return make() if team is None else team.on_first("the run's folder", make)


def _train(
    graph: Graph,
    config: TrainConfig,
    folder: RunFolder | None,
    on_epoch: OnEpoch | None,
    team: "Team | None",
) -> Run:
    with thread_count(config.threads), memory_of_device():
        trainer = Trainer(graph, config, folder, team)
        _restore(trainer, folder, team)
        saved = time.monotonic()
        while trainer.has_more_epochs:
            record = trainer.epoch()
            if folder is not None:
                folder.append_history(record)
                if time.monotonic() - saved >= _CHECKPOINT_EVERY:
                    folder.save_checkpoint(trainer.checkpoint())
                    saved = time.monotonic()
            if on_epoch is not None:
                on_epoch(record)
        return _finish(graph, trainer, folder)


def _restore(trainer: Trainer, folder: RunFolder | None, team: "Team | None") -> None:
    """Bring a trainer to where its run was left, if it was."""

    def read() -> tuple[Checkpoint | None, list[dict[str, Any]]]:
        checkpoint = None if folder is None else folder.load_checkpoint()
        if folder is None or checkpoint is None:
            return None, []
        return checkpoint, folder.read_history(checkpoint.progress["epochs"])

    checkpoint, history = read() if team is None else team.shared(read)
    if checkpoint is not None:
        try:
            trainer.restore(checkpoint, history)
        except (KeyError, ValueError, RuntimeError):
            where = "the run" if folder is None else folder.path
            raise FormatError(
                f"{where}/state.safetensors is not the state of this run; "
                "delete it to train from the first epoch"
            ) from None
    if folder is not None:
        folder.write_history(trainer.history)


def _finish(graph: Graph, trainer: Trainer, folder: RunFolder | None) -> Run:
    model, clock = trainer.model, trainer.clock
    if folder is not None:
        folder.save_checkpoint(trainer.checkpoint())
    model.load_state_dict(trainer.best)
    best = trainer.history[trainer.best_at]
    metrics: dict[str, Any] = {
        "dataset": graph.name,
        "seed": trainer.config.seed,
        "epochs": len(trainer.history),
        "best_epoch": best["epoch"],
    }
    if trainer.validation is not None:
        metrics["validate_every"] = trainer.validate_every
    metrics |= {name: value for name, value in best.items() if name.startswith("val_")}
    if graph.split.test.size:
        with clock.charge("evaluation"):
            # What training held goes first: both together would be the run's peak of memory.
            del trainer.data, trainer.feed, trainer.sampler, trainer.validation
            judge = trainer.workshop.judge("test", once=True)
            scores = judge(model) if judge is not None and len(judge) else None
        if scores is not None:
            metrics |= {f"test_{name}": value for name, value in scores.scores().items()}
            metrics["test_classes"] = {
                name: list(getattr(scores, name))
                for name in ("precision", "recall", "f1", "support")
            }
    spent = clock.seconds
    metrics |= {
        "train_seconds": spent["sampling"] + spent["compute"] + spent["evaluation"],
        "seconds_per_batch": (spent["sampling"] + spent["compute"]) / max(trainer.batches, 1),
        **{f"{purpose}_seconds": seconds for purpose, seconds in spent.items()},
        "batches": trainer.batches,
        "device": str(trainer.device),
        **trainer.workshop.facts(),
    }
    run = Run(
        model=model.eval(),
        config=trainer.config,
        history=trainer.history,
        metrics=metrics,
        class_names=None if graph.class_names is None else tuple(graph.class_names),
        feature_names=None if graph.feature_names is None else tuple(graph.feature_names),
        # The folder has it already; of a graph in memory it is a hash over all of its bytes.
        fingerprint=fingerprint(graph) if folder is None else folder.about["fingerprint"],
        source=graph.source,
        path=None if folder is None else folder.path,
    )
    if folder is not None:
        folder.finish(run)
    return run
