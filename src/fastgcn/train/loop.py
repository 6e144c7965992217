"""`fit` and `resume`: the only training loop."""

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn

from fastgcn.backends import Backend, Checkpoint, MakeSampler, choose_backend, name_of
from fastgcn.backends.base import score
from fastgcn.backends.data import SharedData, check_trainable
from fastgcn.config import SETTINGS, TrainConfig
from fastgcn.data.layout import fingerprint
from fastgcn.data.load import load
from fastgcn.data.splits import with_split
from fastgcn.errors import DivergedError, FastGCNError, FormatError, InputError
from fastgcn.graph.graph import Graph
from fastgcn.kernels.compiling import clock
from fastgcn.machine import memory_of_device, thread_count
from fastgcn.model import GCN, all_finite
from fastgcn.network import Network
from fastgcn.progress import note, shown, visible
from fastgcn.train.callbacks import ShowEpochs, told
from fastgcn.train.decision import decide, usual_scores, warnings
from fastgcn.train.divergence import NotFiniteError, what_to_change
from fastgcn.train.ensemble import Further, MakeBackend, joined, networks_of, train_further
from fastgcn.train.presets import resolve, resolve_own
from fastgcn.train.race import Choice, choose
from fastgcn.train.run import Run, RunFolder, describe, module_name
from fastgcn.train.training import Training, best_epoch, check_room, should_stop

if TYPE_CHECKING:
    from fastgcn.backends.ranks.shard import Shard

# Called with the record of each epoch; a callback that returns True ends the run there.
Callback = Callable[[dict[str, Any]], bool | None]

# The further networks of a run of one network.
_NO_OTHERS = Further()

# Seconds between checkpoints: the most work that a kill loses, beside the current epoch.
_CHECKPOINT_EVERY = 1.0


def fit(
    graph: Any,
    config: TrainConfig | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    sampler: MakeSampler | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    shard: "Shard | None" = None,
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train a network on the training nodes of `graph`; validation chooses the weights kept.

    `graph` is a `Graph`, or what `fastgcn.load` takes: a path, a name, or a graph of PyG, networkx
    or OGB. A labelled graph without a split gets that of `random_split(graph)`.

    Settings are given by `config`, by name (`epochs=20`), or both; a name overrides the config.
    Settings that are not given come from the named preset (`preset="paper"`), or are chosen for
    the graph. `run_dir` keeps the run on disk, where it survives an interruption (`resume`). If
    several processes train, each passes its `shard` of the graph; the first of them writes the
    run.

    `sampler` makes your own sampler from Â of the training graph; test it with `check_sampler`
    first. It runs on the CPU, and the network of `config` trains with its blocks.

    `model` is a network to start from, such as that of an earlier run, or any `nn.Module` of your
    own whose `forward(blocks, x)` gives logits; a copy of it is trained. It is given a `Block` for
    each layer (`samples=(400, 400)`, or its attribute `n_layers`; two if neither says it), and the
    rows of `blocks[0].src`. `run.model.module` is your module with the best weights.

    `callbacks` are called with the record of each epoch. If one returns True, training ends
    after that epoch, and the run is finished as if early stopping had ended it. A `Callback` is
    also told of the start and the end: `EarlyStop`, `KeepWeights` and loggers are such.

    With `progress=True`, standard error (in a notebook, the cell) shows the epochs and what was
    chosen for you: a bar on a terminal, lines elsewhere. With False, nothing is shown. By default,
    a terminal sees bars of steps that take long, a notebook sees only the notes.

    If a loss or a weight becomes NaN or infinite, `DivergedError` says what to change. Its `run`,
    and `run_dir`, hold the best epoch before that.

    >>> import fastgcn
    >>> run = fastgcn.fit(fastgcn.load("digits"), epochs=2, samples=50)
    >>> len(run.history), run.config.norm
    (2, 'layer')
    """
    if progress not in (None, True, False):
        raise InputError(f"progress must be True, False or None, got {progress!r}")
    with shown(progress):
        if not isinstance(graph, Graph):
            graph = load(graph)
        if shard is None:
            graph = with_split(graph)
            if run_dir is not None:
                RunFolder.check_free(Path(run_dir))
        if model is not None and not isinstance(model, nn.Module):
            raise InputError(
                f"model must be a torch.nn.Module, got {type(model).__name__}; its "
                "forward(blocks, x) gives logits"
            )
        if model is not None and not isinstance(model, GCN):
            choice = Choice(resolve_own(graph, config, settings, model))
        elif shard is None and sampler is None and model is None:
            choice = choose(graph, config, settings)
        elif model is None:
            choice = Choice(resolve(graph, config, settings, sampled=True))
        else:  # a network of ours goes on as what it is
            choice = Choice(resolve(graph, config, {"ensemble": model.ensemble} | settings))
        train = partial(
            fit_choice, graph, choice, run_dir=run_dir, sampler=sampler, model=model, shard=shard
        )
        if not (progress and visible()):
            return train(callbacks=callbacks)
        with ShowEpochs(choice.config.epochs) as show:
            return train(callbacks=[show, *callbacks])


def fit_choice(
    graph: Graph,
    choice: Choice,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    sampler: MakeSampler | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    shard: "Shard | None" = None,
) -> Run:
    """`fit` with settings that are chosen already; the winner of a race trains on."""
    config = choice.config
    if shard is None:
        check_room(graph, config)
    elif config.ensemble > 1:
        raise InputError(
            f"ensemble = {config.ensemble} is for a single process; leave out torchrun, or "
            "set ensemble = 1"
        )
    path = None if run_dir is None else Path(run_dir)
    make = _maker(graph, config, path, sampler, model)
    if choice.training is not None:
        backend = choice.training.backend
    elif shard is not None:
        backend = choose_backend(graph, config, path, shard=shard, sampler=sampler, model=model)
    else:
        backend = make(0, config, SharedData())
    folder = None
    if path is not None:
        # Checked before the folder is made, so that a refused run leaves nothing behind.
        check_trainable(graph, config)
        about = {
            "config": config.to_dict(),
            "data": None if graph.source is None else dict(graph.source),
            "fingerprint": fingerprint(graph),
            "sampler": None if sampler is None else name_of(sampler),
            **module_name(model),
            "imported": graph.imported,
            "choice": choice.to_dict(),
            **({"task": graph.task} if graph.regression else {}),
        }
        folder = backend.on_first("the run's folder", lambda: RunFolder.create(path, about))
    try:
        with thread_count(config.threads), memory_of_device():
            return _train(graph, choice, backend, folder, callbacks, make)
    except FastGCNError:
        if folder is not None:
            folder.discard_if_unused()
        raise
    finally:
        if folder is not None:
            folder.release()


def _maker(
    graph: Graph,
    config: TrainConfig,
    path: Path | None,
    sampler: MakeSampler | None,
    model: nn.Module | None,
) -> MakeBackend:
    """Makes the backends of a run's networks; those of an ensemble start from a network each."""
    starts = networks_of(model, config) if isinstance(model, GCN) else [model]

    def make(number: int, own: TrainConfig, shared: SharedData) -> Backend:
        start = starts[number % len(starts)]
        return choose_backend(graph, own, path, sampler=sampler, model=start, shared=shared)

    return make


def resume(
    run_dir: str | os.PathLike[str],
    graph: Graph,
    *,
    sampler: MakeSampler | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    shard: "Shard | None" = None,
    epochs: int | None = None,
) -> Run:
    """Continue an interrupted run; on the CPU the result is that of an uninterrupted run.

    `epochs` extends a finished run to so many epochs, unless early stopping has ended it.

    Any number of processes can continue it together, each with its `shard`. If another process
    is training the run, a `BusyError` names it. If the run used a sampler or a network of your
    own, pass it again; its weights are those of the run.
    """
    path = Path(run_dir)
    if shard is None:
        graph, folder = with_split(graph), RunFolder.to_resume(path)
    else:
        about = shard.group.broadcast("the run", lambda: RunFolder.to_resume(path).about)
        folder = RunFolder(path, about)
    if epochs is not None:
        _extend(folder, epochs, shard)
    if folder.finished:
        return folder.load(model)
    if fingerprint(graph) != folder.about["fingerprint"]:
        raise InputError(
            f"{run_dir} was trained on other data: {graph.name} does not have its fingerprint; "
            "resume with the graph and split the run was started with"
        )
    own = folder.about.get("sampler")
    if (own is None) != (sampler is None):
        raise InputError(
            f"{run_dir} was trained with the settings' own sampler; resume it without `sampler`"
            if own is None
            else f"{run_dir} was trained with the sampler {own}; give it again, "
            "fastgcn.resume(run_dir, graph, sampler=...) in Python"
        )
    folder.check_module(model)
    make = _maker(graph, folder.config, path, sampler, model)
    if shard is None:
        backend = make(0, folder.config, SharedData())
    else:
        backend = choose_backend(graph, folder.config, path, shard=shard)
    kept = backend.on_first("the run's folder", folder.claim)
    chosen = Choice.from_dict(folder.config, folder.about.get("choice"))
    try:
        with thread_count(folder.config.threads), memory_of_device():
            return _train(graph, chosen, backend, kept, callbacks, make)
    finally:
        folder.release()


def _extend(folder: RunFolder, epochs: int, shard: "Shard | None") -> None:
    """Set the epochs of a run that is to be continued."""
    if shard is not None:
        raise InputError("a run is extended by a single process; leave out torchrun, or epochs")
    SETTINGS["epochs"].check(epochs)
    if not folder.finished:
        raise InputError(
            f"{folder.path} is not finished; continue it first, without other epochs: "
            f"fastgcn train --resume {folder.path}"
        )
    history, metric = folder.scores()
    best = best_epoch(history, metric)
    if should_stop(history, folder.config, best):
        raise InputError(
            f"early stopping has ended {folder.path} after {len(history)} epochs, and would "
            f"end it again; start from its weights: fastgcn train DATA --from {folder.path}"
        )
    folder.claim()
    try:
        folder.extend(epochs)
    finally:
        folder.release()


def _train(
    graph: Graph,
    choice: Choice,
    backend: Backend,
    folder: RunFolder | None,
    callbacks: Sequence[Callback],
    make: MakeBackend,
) -> Run:
    training, stopped = choice.training, False
    if training is None:
        training = Training(choice.config, backend)
        _restore(training, folder)
    if folder is not None:
        folder.network = {
            "dataset": graph.name,
            "metric": training.metric,
            "device": str(backend.device),
            "validate_every": backend.validate_every,
            **describe(backend.model, graph.class_names, graph.feature_names),
        }
    earlier = [] if choice.training is not None else list(training.history)
    with told(callbacks, training, earlier) as finished:
        if choice.training is not None:
            if folder is not None:
                folder.write_history(training.history)
            stopped = _tell(training, folder, callbacks)
        saved = time.monotonic()
        while training.has_more_epochs and not stopped:
            try:
                record = training.epoch()
            except NotFiniteError as wrong:
                _diverged(graph, training, folder, choice, str(wrong))
            if folder is not None:
                folder.append_history(record)
                if time.monotonic() - saved >= _CHECKPOINT_EVERY:
                    folder.save_checkpoint(training.checkpoint())
                    saved = time.monotonic()
            stopped = _stops(training, folder, callbacks, record)
        further = _NO_OTHERS
        if training.config.ensemble > 1 and not stopped:
            if folder is not None:  # an interruption from now on costs the further networks alone
                folder.save_checkpoint(training.checkpoint())
            further = train_further(training.config, len(training.history), make)
        return finished(_finish(graph, training, folder, choice, further))


def _tell(training: Training, folder: RunFolder | None, callbacks: Sequence[Callback]) -> bool:
    """Call the callbacks with the epochs that a race has trained; True if one ends the run.

    The training then goes back to that epoch, by training again: it kept no state of it.
    """
    for number, record in enumerate(training.history, start=1):
        if _stops(training, folder, callbacks, record):
            if number < len(training.history):
                training.restart(number)
                if folder is not None:
                    folder.write_history(training.history)
            return True
    return False


# What callbacks answer; the largest counts.
_GO_ON, _STOP, _INTERRUPTED = range(3)


def _stops(
    training: Training,
    folder: RunFolder | None,
    callbacks: Sequence[Callback],
    record: dict[str, Any],
) -> bool:
    """Call the callbacks with an epoch's record; True if one ends the run.

    If one raises Ctrl-C or a signal, the training is saved first.
    """
    verdict, interrupt = _ask(callbacks, record)
    verdict = training.backend.agree(verdict)  # what stops one of several processes stops all
    if verdict == _INTERRUPTED:
        if folder is not None:
            folder.save_checkpoint(training.checkpoint())
        raise interrupt or KeyboardInterrupt
    return verdict == _STOP


def _ask(callbacks: Sequence[Callback], record: dict[str, Any]) -> tuple[int, BaseException | None]:
    """Call the callbacks; what they answer, and the Ctrl-C or signal that one of them raised."""
    try:
        answers = [callback(record) for callback in callbacks]
    except Exception:
        raise
    except BaseException as interrupt:
        return _INTERRUPTED, interrupt
    return (_STOP if True in answers else _GO_ON), None


def _restore(training: Training, folder: RunFolder | None) -> None:
    """Restore a training from its run's checkpoint, if there is one."""

    def read() -> Checkpoint | None:
        checkpoint = None if folder is None else folder.load_checkpoint()
        if folder is not None and checkpoint is not None:
            progress = checkpoint.progress
            progress["history"] = folder.read_history(progress["epochs"])
        return checkpoint

    backend = training.backend
    checkpoint = backend.broadcast(backend.on_first("the checkpoint", read))
    if checkpoint is not None:
        if not all_finite(checkpoint.tensors.values()):
            raise _not_its_state(folder, "holds numbers that are not finite")
        try:
            training.restore(checkpoint)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError):
            raise _not_its_state(folder, "is not the state of this run") from None
    if folder is not None:
        folder.write_history(training.history)


def _not_its_state(folder: RunFolder | None, why: str) -> FormatError:
    where = "the run" if folder is None else folder.path
    return FormatError(f"{where}/state.safetensors {why}; delete it to train from the first epoch")


def _diverged(
    graph: Graph, training: Training, folder: RunFolder | None, choice: Choice, wrong: str
) -> NoReturn:
    """Keep the best epoch so far, as a run that has stopped, and say what to change.

    If there was no epoch before the one that went wrong, nothing is kept.
    """
    backend, epoch = training.backend, len(training.history) + 1
    change = what_to_change(backend.largest_feature(), graph, training.config)
    reason = f"training diverged in epoch {epoch}, where {wrong}; {change}"
    run, kept = None, "no epoch before it can be kept"
    if training.history:
        run = _finish(graph, training, folder, choice, stopped=reason)
        kept = f"epoch {run.metrics['best_epoch']}, the best before it, is kept"
        kept += "" if run.path is None else f" in {run.path}"
    elif folder is not None:
        folder.discard()

    def fail() -> None:
        raise DivergedError(f"{reason}; {kept}", run)

    backend.on_first("training", fail)
    raise AssertionError("unreachable: the call above fails in all processes")


def _finish(
    graph: Graph,
    training: Training,
    folder: RunFolder | None,
    choice: Choice,
    further: Further = _NO_OTHERS,
    *,
    stopped: str | None = None,
) -> Run:
    """Keep the best weights, score them on the test nodes, and write the run's result.

    `further` are the networks of an ensemble beside the first. `stopped` is why the run has stopped
    and counts as not finished.
    """
    backend, config = training.backend, training.config
    if folder is not None and stopped is None:
        folder.save_checkpoint(training.checkpoint())
    backend.model.load_state_dict(training.best)
    model = joined(backend.model, config, further.trainings)
    best = training.history[training.best_at]
    metrics: dict[str, Any] = {
        "dataset": graph.name,
        "seed": config.seed,
        "epochs": len(training.history),
        "best_epoch": best["epoch"],
        "metric": training.metric,
    }
    if stopped is not None:
        metrics["stopped"] = stopped
    if graph.split.val.size:
        metrics["validate_every"] = backend.validate_every
    metrics |= {name: value for name, value in best.items() if name.startswith("val_")}
    metrics |= _ensemble_facts(training, further)
    metrics |= _decide_and_score(graph, training, model)
    spent = training.seconds
    metrics |= {
        "train_seconds": spent["sampling"] + spent["compute"] + spent["evaluation"],
        "seconds_per_batch": training.seconds_per_batch,
        **{f"{purpose}_seconds": seconds for purpose, seconds in spent.items()},
        "batches": training.batches,
        "device": str(backend.device),
        **backend.facts(),
    }
    for sentence in metrics["notes"]:
        note(sentence)
    if choice.tried:
        metrics["choice"] = choice.to_dict()
    run = Run(
        model=model.eval(),
        config=config,
        history=training.history,
        metrics=metrics,
        class_names=None if graph.class_names is None else tuple(graph.class_names),
        feature_names=None if graph.feature_names is None else tuple(graph.feature_names),
        # The folder has it already; for a graph in memory, all of its bytes must be hashed.
        fingerprint=fingerprint(graph) if folder is None else folder.about["fingerprint"],
        source=graph.source,
        imported=graph.imported,
        path=None if folder is None else folder.path,
    )
    if folder is not None:
        folder.finish(run)
    return run


def _ensemble_facts(training: Training, further: Further) -> dict[str, Any]:
    """What a run keeps of the networks of an ensemble; nothing of a single one."""
    if not further.trainings:
        return {}
    every, name = (training, *further.trainings), f"val_{training.metric}"
    scores = [each.history[each.best_at].get(name) for each in every]
    epochs = [len(each.history) for each in every]
    return {"ensemble": {name: scores, "epochs": epochs, "seconds": round(further.seconds, 3)}}


def _decide_and_score(graph: Graph, training: Training, model: Network) -> dict[str, Any]:
    """Choose temperature and threshold on validation; the scores, and notes on choices and scores.

    `model` has the best weights, of all networks of an ensemble.
    """
    backend, config = training.backend, training.config
    names, notes = graph.class_names, list(training.notes())
    if model.ensemble > 1:
        notes.append(
            f"The model is the mean of {model.ensemble} networks from different seeds; the history "
            "is that of the first."
        )
    found: dict[str, Any] = {}
    worse: list[str] = []
    start = clock()
    validated_best = "val_loss" in training.history[training.best_at]
    outputs = backend.outputs("val", model) if validated_best else None
    if outputs is not None:
        logits, labels = outputs
        if model.target is None:
            model.decision = decide(
                logits, labels, model.decision, training.metric, calibrate=config.calibrate
            )
        also = _also(training, len(labels))
        validated = score(model, torch.from_numpy(logits), labels, also)
        found |= {f"val_{name}": value for name, value in validated.scores().items()}
        if model.target is not None:
            worse = warnings(training.metric, "validation", validated, training.counts, names)
            notes += worse
    scores = backend.evaluate("test", model, last=True, also=_also(training, graph.split.test.size))
    training.seconds["evaluation"] += clock() - start
    training.book_compiling()
    if scores is not None and not math.isfinite(scores.loss):
        notes.append("The outputs for test nodes are not finite, so there are no test scores.")
        scores = None
    if scores is not None:
        found |= {f"test_{name}": value for name, value in scores.scores().items()}
        if model.target is None:
            found["test_classes"] = {
                name: list(getattr(scores, name))
                for name in ("precision", "recall", "f1", "support")
            }
        if not worse:
            notes += warnings(training.metric, "test", scores, training.counts, names)
    if model.target is not None:
        target = {"mean": model.target.mean, "scale": model.target.scale}
        return found | {"task": model.task, "target": target, "notes": notes}
    return found | {"decision": model.decision.to_dict(), "notes": notes}


def _also(training: Training, n_nodes: int) -> tuple[str, ...]:
    """The names of the scores that a run has, beside the usual four."""
    counts, multilabel = training.counts, training.backend.model.multilabel
    return (*usual_scores(len(counts), n_nodes, multilabel=multilabel), training.metric)
