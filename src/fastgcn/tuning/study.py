"""`tune`: an Optuna study whose trials are trainings, scored on validation nodes alone.

The first trial is the automatic choice itself, so the best one is at least as good on validation.
The test nodes are read once, when the best settings are trained again as an ordinary run. With the
same seed, that is the training of the trial: on the CPU to the bit.
"""

import json
import math
import os
import re
import time as clock
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgcn.backends import choose_backend
from fastgcn.backends.data import check_trainable
from fastgcn.config import OWN_POWERS, SETTINGS, TrainConfig
from fastgcn.data.layout import fingerprint
from fastgcn.data.load import load
from fastgcn.data.splits import with_split
from fastgcn.errors import FastGCNError, FormatError, InputError, MissingDependencyError
from fastgcn.graph.graph import Graph
from fastgcn.locks import locked
from fastgcn.machine import memory_of_device, thread_count
from fastgcn.metrics import better
from fastgcn.progress import note, progress, shown
from fastgcn.train.decision import chosen_metric
from fastgcn.train.divergence import NotFiniteError
from fastgcn.train.loop import fit_choice, resume
from fastgcn.train.race import Choice, choose, rounds_of
from fastgcn.train.run import Run, RunFolder
from fastgcn.train.training import Training, check_room
from fastgcn.tuning.space import params_of, settings_of, space
from fastgcn.writing import write_text

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from fastgcn.report.notebook import Picture

# Trials that end before any is stopped early.
_UNSTOPPED = 5

# Seconds that a process waits for another one to write the study.
_PATIENCE = 120

_NAME = "fastgcn"  # of the study in its file


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: its settings, and how far it came.

    Attributes:
        value: the metric on the validation nodes at its best epoch; None if it has none.
        finished: False if it was stopped early, or failed.
        automatic: True for the automatic choice.
        settings: those that were drawn; the automatic choice has none.
        why: why it has not finished; empty otherwise.
    """

    number: int
    value: float | None
    val_loss: float | None
    epochs: int
    seconds: float
    finished: bool
    automatic: bool
    config: TrainConfig
    settings: Mapping[str, Any]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `tune` has found.

    Attributes:
        run: the best settings as an ordinary run, with its scores on the test nodes.
        best: the best trial.
        trials: all of them, best first.
        metric: what validation selects by.
        importance: the share of each parameter in the differences between trials; empty if there
            are too few trials.
        folder: where the study, the run, `best.toml` and `tuning.png` are; None if nowhere.
    """

    run: Run
    best: Trial
    trials: tuple[Trial, ...]
    metric: str
    importance: Mapping[str, float]
    folder: Path | None = None

    @property
    def automatic(self) -> Trial:
        """The trial of the automatic choice."""
        return next(each for each in self.trials if each.automatic)

    def plot(self) -> "Picture":
        """The score of every trial, the best so far, and what matters; for notebooks and files."""
        from fastgcn.tuning.picture import picture_of

        return picture_of(self)


def tune(
    graph: Any,
    config: TrainConfig | None = None,
    *,
    trials: int = 50,
    time: str | float = "10m",
    processes: int = 1,
    run_dir: str | os.PathLike[str] | None = None,
    study: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Tuning:
    """Search settings for `graph` that are better on its validation nodes than the automatic ones.

    Settings that are given, by `config` or by name (`metric="macro_f1"`), stay as they are; the
    others are searched. The search ends after so many `trials`, or this `time`, such as `"10m"`,
    `"1h30m"` or seconds, whichever comes first; trials that are worse than half of the others are
    stopped early. The best settings are then trained once more, and scored on the test nodes.

    `run_dir` keeps the study (`study.sqlite`, or the file `study`), the best run, its settings
    (`best.toml`, for `train --config`) and a picture. The same call goes on with a study that was
    stopped, up to `trials` in all. `processes` work on it together.

    >>> import fastgcn
    >>> found = fastgcn.tune(fastgcn.load("digits"), trials=2, epochs=2)
    >>> found.automatic.number, len(found.trials), found.best.value >= found.automatic.value
    (0, 2, True)
    """
    optuna = _optuna()
    limit = seconds_of(time)
    for name, value in (("trials", trials), ("processes", processes)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    folder = None if run_dir is None else Path(run_dir)
    if folder is None and (processes > 1 or study is not None):
        raise InputError("give run_dir too: several processes, or a study in a file, need a folder")
    with shown(progress), warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if not isinstance(graph, Graph):
            graph = load(graph)
        graph = with_split(graph)
        given = (config or TrainConfig()).replace(**settings)
        check_trainable(graph)
        if not graph.split.val.size:
            raise InputError(
                f"{graph.name} has no validation nodes, and tuning chooses by them; draw a split "
                "(--split random; fastgcn.random_split(graph) in Python)"
            )
        with _held(folder):
            file = None if folder is None else Path(study or folder / "study.sqlite").absolute()
            search = _open(graph, given, file)
            search.run(trials, clock.time() + limit, processes)
            return _conclude(search, folder)


def seconds_of(time: str | float) -> float:
    """A duration in seconds.

    >>> seconds_of("1h30m"), seconds_of("90s"), seconds_of(600)
    (5400.0, 90.0, 600.0)
    """
    text = str(time).strip()
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    parts = [float(part or 0) for part in found.groups()] if found and text else []
    seconds = sum(n * unit for n, unit in zip(parts, (3600, 60, 1), strict=False))
    if not seconds:
        raise InputError(f"time must be a duration such as 90s, 10m or 1h30m, got {time!r}")
    return seconds


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingDependencyError(
            "Optuna is not installed; pip install 'fastgcn[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def _held(folder: Path | None) -> Iterator[None]:
    """Have the lock of the study's folder, which is made if need be."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(
            f"{folder} cannot be a study's folder: a file is in its place; choose another one"
        ) from None
    if (folder / "config.json").exists():
        raise InputError(f"{folder} holds a run; choose another folder for the study")
    try:
        with locked(folder / ".lock", str(folder)):
            yield
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()


def _storage(file: Path) -> Any:
    """The study's file, open."""
    import sqlalchemy
    from optuna.storages import RDBStorage

    # A connection is closed after each use; Python 3.13 warns of those that nobody closes.
    engine = {"connect_args": {"timeout": _PATIENCE}, "poolclass": sqlalchemy.pool.NullPool}
    try:
        return RDBStorage(f"sqlite:///{file.absolute()}", engine_kwargs=engine)
    except (sqlalchemy.exc.DatabaseError, RuntimeError) as error:
        why = str(getattr(error, "orig", error)).splitlines()[0]
        raise FormatError(f"{file} is not a study that can be read: {why}") from None


_open_storage = cache(_storage)  # one in each process that makes trials for another


def _open(graph: Graph, given: TrainConfig, file: Path | None) -> "_Search":
    """A new study, whose first trial is the automatic choice, or the one in the file."""
    import optuna

    about = {
        "fingerprint": fingerprint(graph),
        "given": {n: v for n, v in given.to_dict().items() if n not in _OF_THE_MACHINE},
    }
    if file is not None and file.exists():
        storage = _storage(file)
        names = [each.study_name for each in storage.get_all_studies()]
        if _NAME not in names:
            raise InputError(f"{file} holds no study of fastgcn; name another file")
        study = optuna.load_study(study_name=_NAME, storage=storage)
        kept = study.user_attrs
        _check_same(about, kept, file, graph)
        base = TrainConfig.from_dict(kept["automatic"]).complete()
        metric, why = kept["metric"], kept["why"]
    else:
        if file is not None and not file.parent.is_dir():
            raise InputError(f"there is no folder {file.parent} to write {file.name} into")
        chosen = choose(graph, given)
        base, why = chosen.config, chosen.why
        metric = _metric(graph, base)
        study = optuna.create_study(
            study_name=_NAME,
            storage=None if file is None else _storage(file),
            direction="maximize" if better(metric, 1.0) > 0 else "minimize",
        )
        about |= {"automatic": base.to_dict(), "metric": metric, "why": why}
        for name, value in about.items():
            study.set_user_attr(name, value)
    own = {n: getattr(given, n) for n in given.given & _OF_THE_MACHINE}
    search = _Search(graph, base.replace(**own), given.given, metric, why, study, file)
    search.begin()
    return search


# Settings that another machine may have otherwise, and so are no part of what a study is about.
_OF_THE_MACHINE = frozenset(n for n, each in SETTINGS.items() if each.group == "Machine")


def _check_same(
    about: Mapping[str, Any], kept: Mapping[str, Any], file: Path, graph: Graph
) -> None:
    if not {"fingerprint", "given", "automatic", "metric", "why"} <= kept.keys():
        raise FormatError(f"{file} is damaged: it does not say what its study is about; delete it")
    if about["fingerprint"] != kept["fingerprint"]:
        raise InputError(
            f"{file} is a study of other data: {graph.name} does not have its fingerprint; choose "
            "another --run-dir (run_dir in Python)"
        )
    if about["given"] != kept["given"]:
        shown = ", ".join(f"{n} = {v}" for n, v in kept["given"].items()) or "none"
        raise InputError(
            f"{file} is a study with other given settings ({shown}); give the same, or choose "
            "another --run-dir (run_dir in Python)"
        )


def _metric(graph: Graph, config: TrainConfig) -> str:
    assert graph.labels is not None  # checked before
    assert graph.task is not None
    counts = np.zeros(0, np.int64)
    if graph.task == "classification":
        counts = np.bincount(graph.labels[graph.split.train], minlength=graph.n_classes)
    return chosen_metric(config, counts, graph.task)


@dataclass(frozen=True, slots=True)
class _Search:
    """A study of one graph."""

    graph: Graph
    base: TrainConfig
    given: frozenset[str]
    metric: str
    why: str  # the automatic choice has been made
    study: "Study"
    file: Path | None

    def begin(self) -> None:
        """Give up trials of a process that was killed, and see that the automatic choice is one.

        The lock is taken, so no other process works on the study.
        """
        from optuna.trial import TrialState

        for each in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study.tell(each.number, state=TrialState.FAIL)
        states = (TrialState.COMPLETE, TrialState.WAITING)
        begun = self.study.get_trials(deepcopy=False, states=states)
        if not any(each.user_attrs.get("automatic") for each in begun):
            params = params_of(self.base, self.space())
            self.study.enqueue_trial(params, user_attrs={"automatic": True})

    def space(self) -> dict[str, Any]:
        return space(self.graph, self.base, self.given, self.metric)

    def done(self) -> int:
        """Trials that have finished or were stopped because they are worse."""
        from optuna.trial import TrialState

        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        return len(self.study.get_trials(deepcopy=False, states=ended))

    def run(self, trials: int, deadline: float, processes: int) -> None:
        """Make trials until there are so many in all, or no time is left."""
        done, every = self.done(), len(self.study.get_trials(deepcopy=False))
        if done:
            note(f"Going on after {done} trials")
        best = self._best_value()
        tasks = (partial(_one_trial, self._for(processes), every + i, deadline)
                 for i in range(max(0, trials - done)))  # fmt: skip
        with suppress(_OutOfTimeError), progress("Trying settings", trials, "trials") as advance:
            advance(min(done, trials))
            for number in _results(tasks, processes):
                if number is None:
                    raise _OutOfTimeError
                advance(1)
                value = self._best_value()
                if value is not None and value != best:
                    best = value
                    note(f"Trial {number}: val {self.metric} {value:.4f}, the best so far")
        if self.done() < trials:
            note(f"Out of time after {self.done()} of {trials} trials")

    def _for(self, processes: int) -> "_Search":
        """This search for another process, which opens the file itself."""
        return self if processes == 1 else replace(self, study=None)  # type: ignore[arg-type]

    def _best_value(self) -> float | None:
        found = self.trials()
        return found[0].value if found and found[0].finished else None

    def trials(self) -> tuple[Trial, ...]:
        """All trials, best first: finished ones by the metric; among equal ones the automatic
        choice, then the lowest loss."""
        from optuna.trial import TrialState

        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        found = [self._trial(e) for e in self.study.get_trials(deepcopy=False, states=ended)]
        return tuple(sorted(found, key=self._rank))

    def _rank(self, each: Trial) -> tuple[bool, float, bool, float, int]:
        value = float("inf") if each.value is None else -better(self.metric, each.value)
        loss = float("inf") if each.val_loss is None else each.val_loss
        return not each.finished, value, not each.automatic, loss, each.number

    def _trial(self, each: "FrozenTrial") -> Trial:
        kept = each.user_attrs
        settings, fit = kept.get("settings", {}), kept.get("fit", {})
        values = each.intermediate_values
        value = each.value if not values else values[max(values)]
        return Trial(
            number=each.number,
            value=value,
            val_loss=fit.get("val_loss"),
            epochs=fit.get("epochs", 0),
            seconds=fit.get("seconds", 0.0),
            finished=each.state.name == "COMPLETE",
            automatic=bool(kept.get("automatic")),
            config=self.base.replace(**settings) if "settings" in kept else self.base,
            settings=settings,
            why=kept.get("why", ""),
        )

    def importance(self) -> dict[str, float]:
        """The share of each parameter in the differences between finished trials, by fANOVA."""
        import optuna

        finished = [each for each in self.trials() if each.finished]
        if len(finished) < _UNSTOPPED or len({each.value for each in finished}) < 2:
            return {}
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=self.base.seed)
        found = optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        return {name: round(float(share), 4) for name, share in found.items()}


class _OutOfTimeError(Exception):
    """No time is left for further trials."""


def _results(tasks: Iterator[Callable[[], int | None]], processes: int) -> Iterator[int | None]:
    """What the tasks return, one by one, as they end."""
    if processes == 1:
        for task in tasks:
            yield task()
        return
    from joblib import Parallel, delayed

    pool = Parallel(
        processes, return_as="generator_unordered", pre_dispatch=processes, batch_size=1
    )
    cores = max(1, (os.cpu_count() or 1) // processes)
    yield from pool(delayed(_elsewhere)(task, cores) for task in tasks)


def _elsewhere(task: Callable[[], int | None], cores: int) -> int | None:
    """A task in a process of its own, which shows nothing."""
    _optuna()
    with shown(False), thread_count(cores):
        return task()


def _one_trial(search: _Search, index: int, deadline: float) -> int | None:
    """Draw settings, train with them, and tell the study; the number of the trial.

    None if there was no time left for it; the automatic choice is tried whatever the time.
    """
    import optuna
    from optuna.trial import TrialState

    sampler = optuna.samplers.TPESampler(seed=1000 * search.base.seed + index, multivariate=True)
    warm_up = rounds_of(search.base)[0]
    pruner = optuna.pruners.MedianPruner(_UNSTOPPED, warm_up)
    study = search.study
    if study is None:
        assert search.file is not None
        study = optuna.load_study(study_name=_NAME, storage=_open_storage(search.file))
    study.sampler, study.pruner = sampler, pruner
    waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
    if clock.time() >= deadline and not waiting:
        return None
    trial = study.ask(search.space())
    automatic = bool(trial.user_attrs.get("automatic"))
    settings = {} if automatic else settings_of(trial.params, search.base)
    trial.set_user_attr("settings", json.loads(json.dumps(settings)))
    try:
        ended = _train(search, trial, settings, None if automatic else deadline)
    except (NotFiniteError, FastGCNError) as error:
        if automatic and isinstance(error, NotFiniteError):
            raise InputError(
                f"training with the automatic settings diverged, where {error}; scale the features "
                "(--feature-scaling standard) or give a lower --learning-rate"
            ) from None
        if automatic:
            raise
        trial.set_user_attr("why", str(error))
        study.tell(trial, state=TrialState.PRUNED)
        return int(trial.number)
    if isinstance(ended, float):
        study.tell(trial, ended)
    else:
        study.tell(trial, state=ended)
    return None if ended is TrialState.FAIL else int(trial.number)


def _train(search: _Search, trial: Any, settings: dict[str, Any], deadline: float | None) -> Any:
    """Train one trial; its best score, or the state of one that is stopped.

    Without a deadline it is trained to its end.
    """
    from optuna.trial import TrialState

    graph, began = search.graph, clock.time()
    config = search.base.replace(**settings)
    check_trainable(graph, config)
    check_room(graph, config)
    every = max(1, rounds_of(config)[0] // 4)  # epochs between two looks at the others

    def report() -> float:
        best = training.history[training.best_at]
        spent, loss = round(clock.time() - began, 3), best.get("val_loss")
        about = {"val_loss": loss, "epochs": len(training.history), "seconds": spent}
        trial.set_user_attr("fit", about)
        return float(best.get(f"val_{search.metric}", math.nan))

    with thread_count(config.threads) if config.threads else nullcontext(), memory_of_device():
        training = Training(config, choose_backend(graph, config))
        while training.has_more_epochs:
            record = training.epoch()
            if deadline is not None and clock.time() >= deadline:
                report()
                return TrialState.FAIL
            if "val_loss" in record and record["epoch"] % every == 0:
                best = training.history[training.best_at]
                trial.report(best[f"val_{search.metric}"], record["epoch"])
                if deadline is not None and trial.should_prune():
                    report()
                    trial.set_user_attr("why", "worse than half of the others")
                    return TrialState.PRUNED
        return report()


def _conclude(search: _Search, folder: Path | None) -> Tuning:
    """Train the best settings as a run, and write what was found."""
    trials = search.trials()
    best = trials[0]
    done = len(trials)
    why = (
        search.why or "the automatic choice"
        if best.automatic
        else f"trial {best.number} of {done}, by validation {search.metric} {best.value:.4f}"
    )
    if folder is not None:
        write_text(folder / "best.toml", toml_of(best, search.metric))
    note(f"Training the best settings again, with the test nodes at the end: {why}")
    run = _best_run(search, best, None if folder is None else folder / f"trial-{best.number}", why)
    found = Tuning(run, best, trials, search.metric, search.importance(), folder)
    if folder is not None and len(trials) > 1:
        found.plot().save(folder / "tuning.png")
    return found


def _best_run(search: _Search, best: Trial, path: Path | None, why: str) -> Run:
    """The run of the best trial; one that is there already is loaded or continued."""
    if path is not None and (path / "config.json").exists():
        return (
            RunFolder.open(path).load()
            if RunFolder.open(path).finished
            else resume(path, search.graph)
        )
    return fit_choice(search.graph, Choice(best.config, f"tuned: {why}"), run_dir=path)


def toml_of(best: Trial, metric: str) -> str:
    """The settings of a trial as TOML, for `train --config`; those of the machine are left out."""
    values = best.config.to_dict()
    if values.get("power") is None:
        values["power"] = OWN_POWERS.get(best.config.distribution)
    kept = {n: v for n, v in values.items() if v is not None and n not in _OF_THE_MACHINE}
    lines = [f"{name} = {json.dumps(value)}" for name, value in kept.items()]
    head = f"# Trial {best.number}: validation {metric} {best.value:.4f}"
    return "\n".join([head, *lines, ""])
