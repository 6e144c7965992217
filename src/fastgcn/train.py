"""`fit`: the only training loop."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastgcn.config import TrainConfig
from fastgcn.data.layout import fingerprint
from fastgcn.diagnose.auto import resolve_samples
from fastgcn.errors import FormatError, InputError
from fastgcn.graph import Graph
from fastgcn.judge import Judge
from fastgcn.machine import choose_device, thread_count
from fastgcn.presets import best_preset
from fastgcn.runs import Run, RunFolder
from fastgcn.stopping import best_epoch, should_stop
from fastgcn.trainer import Trainer
from fastgcn.training_data import check_trainable

OnEpoch = Callable[[dict[str, Any]], None]

# Seconds between checkpoints: what a kill can cost at most, beside the epoch under way.
_CHECKPOINT_EVERY = 1.0


def fit(
    graph: Graph,
    config: TrainConfig | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train a network on the training nodes of `graph`; validation chooses the weights kept.

    Without a config, with the best settings known for such a graph. `run_dir` keeps the run on
    disk, where it survives an interruption (`resume`). `on_epoch` is called with the record of
    each epoch.

    >>> import fastgcn
    >>> run = fastgcn.fit(fastgcn.load("digits"), fastgcn.TrainConfig(epochs=2, samples=50))
    >>> len(run.history)
    2
    """
    config = resolve_samples(graph, config or best_preset(graph))
    folder = None
    if run_dir is not None:
        # Before the folder is made: a refused run leaves nothing behind.
        check_trainable(graph, config)
        choose_device(config.device)
        about = {
            "config": config.to_dict(),
            "data": None if graph.source is None else dict(graph.source),
            "fingerprint": fingerprint(graph),
        }
        folder = RunFolder.create(Path(run_dir), about)
    return _train(graph, config, folder, on_epoch)


def resume(
    run_dir: str | os.PathLike[str], graph: Graph, *, on_epoch: OnEpoch | None = None
) -> Run:
    """Continue an interrupted run; on the CPU it ends as it would have uninterrupted."""
    folder = RunFolder.open(Path(run_dir))
    if folder.finished:
        return folder.load()
    if fingerprint(graph) != folder.about["fingerprint"]:
        raise InputError(
            f"{run_dir} was trained on other data: {graph.name} does not have its fingerprint; "
            "resume with the graph and split the run was started with"
        )
    return _train(graph, folder.config, folder, on_epoch)


def _train(
    graph: Graph, config: TrainConfig, folder: RunFolder | None, on_epoch: OnEpoch | None
) -> Run:
    with thread_count(config.threads):
        trainer = Trainer(graph, config, folder)
        if folder is not None:
            checkpoint = folder.load_checkpoint()
            if checkpoint is not None:
                history = folder.read_history(checkpoint.progress["epochs"])
                try:
                    trainer.restore(checkpoint, history)
                except (KeyError, ValueError, RuntimeError):
                    raise FormatError(
                        f"{folder.path}/state.safetensors is not the state of this run; "
                        "delete it to train from the first epoch"
                    ) from None
            folder.write_history(trainer.history)
        saved = time.monotonic()
        while len(trainer.history) < config.epochs and not should_stop(trainer.history, config):
            record = trainer.epoch()
            if folder is not None:
                folder.append_history(record)
                if time.monotonic() - saved >= _CHECKPOINT_EVERY:
                    folder.save_checkpoint(trainer.checkpoint())
                    saved = time.monotonic()
            if on_epoch is not None:
                on_epoch(record)
        return _finish(graph, trainer, folder)


def _finish(graph: Graph, trainer: Trainer, folder: RunFolder | None) -> Run:
    model, clock = trainer.model, trainer.clock
    if folder is not None:
        folder.save_checkpoint(trainer.checkpoint())
    model.load_state_dict(trainer.best)
    best = trainer.history[best_epoch(trainer.history)]
    metrics: dict[str, Any] = {
        "dataset": graph.name,
        "seed": trainer.config.seed,
        "epochs": len(trainer.history),
        "best_epoch": best["epoch"],
    }
    metrics |= {name: value for name, value in best.items() if name.startswith("val_")}
    if graph.split.test.size:
        with clock.charge("evaluation"):
            # What training held goes first: both together would be the run's peak of memory.
            del trainer.data, trainer.feed, trainer.sampler, trainer.validation
            judge = Judge(graph, trainer.config, graph.split.test, once=True)
            scores = judge(model) if len(judge) else None
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
    }
    run = Run(
        model=model.eval(),
        config=trainer.config,
        history=trainer.history,
        metrics=metrics,
        class_names=None if graph.class_names is None else tuple(graph.class_names),
        # The folder has it already; of a graph in memory it is a hash over all of its bytes.
        fingerprint=fingerprint(graph) if folder is None else folder.about["fingerprint"],
        source=graph.source,
        path=None if folder is None else folder.path,
    )
    if folder is not None:
        folder.finish(run)
    return run
