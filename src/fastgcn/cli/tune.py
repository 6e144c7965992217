"""`fastgcn tune`: search settings on the validation nodes; flags of `train` fix their settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgcn.cli.data import Json, Seed, SplitName, launched, load_graph
from fastgcn.cli.ending import Stopped
from fastgcn.cli.output import emit_json, figure, say, show_table
from fastgcn.cli.train import given_settings, with_settings
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.tuning.study import Trial, Tuning

_BEST = 8  # trials in the table of scores
_COMPARED = 4  # trials in the table of settings, beside the automatic choice


@with_settings
def tune(
    data: Annotated[str, typer.Argument(help="A data set's name, or a folder or file to load.")],
    trials: Annotated[
        int, typer.Option(min=1, help="Trials in all, with those of a study that goes on.")
    ] = 50,
    time: Annotated[
        str, typer.Option(help="Time for trials, such as 90s, 10m or 1h30m; then the best is kept.")
    ] = "10m",
    processes: Annotated[int, typer.Option(min=1, help="Processes that make trials.")] = 1,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting that is not searched, as KEY=VALUE; repeatable."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings that are not searched.")
    ] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the study and its best run; runs/NAME-tune.")
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="SQLite file of the study; RUN_DIR/study.sqlite by default.")
    ] = None,
    json: Json = False,
    **flags: Any,
) -> None:
    """Search settings that are better on validation nodes than the automatic choice (Optuna).

    Settings that are given stay as they are. The same command goes on with a study that was
    stopped. The best settings end as a run and as a TOML file; test nodes are read once, then.
    """
    if launched():
        raise InputError("tune does not run under torchrun; use --processes")
    from fastgcn.tuning.study import seconds_of
    from fastgcn.tuning.study import tune as search

    seconds_of(time)  # before the data are loaded
    given = given_settings(config, assignments, flags)
    graph = load_graph(data, split, split_seed)
    folder = run_dir or Path("runs") / f"{graph.name}-tune"
    with _kept(folder, study or folder / "study.sqlite"):
        found = search(
            graph, trials=trials, time=time, processes=processes, run_dir=folder, study=study,
            **given,
        )  # fmt: skip
    if json:
        emit_json(_as_data(found))
    else:
        _show(found)


@contextmanager
def _kept(folder: Path, file: Path) -> Iterator[None]:
    """After Ctrl-C or a signal, say how to go on, if there is a study already."""
    try:
        yield
    except Stopped as stop:
        if file.exists():
            stop.hint = f"the trials so far are kept in {folder}; the same command goes on"
        raise


def _show(found: "Tuning") -> None:
    metric, run = found.metric, found.run
    finished = [each for each in found.trials if each.finished]
    shown, compared = (
        list(dict.fromkeys([each.number for each in (*finished[:count], found.automatic)]))
        for count in (_BEST, _COMPARED)
    )
    by_number = {each.number: each for each in finished}
    stopped = len(found.trials) - len(finished)
    show_table(
        f"{run.metrics['dataset']}: {len(found.trials)} trials, {stopped} stopped early",
        ("trial", f"val {metric}", "val loss", "epochs", "seconds"),
        [
            (
                f"{each.number}{' (automatic)' if each.automatic else ''}",
                "" if each.value is None else figure(metric, each.value),
                "" if each.val_loss is None else f"{each.val_loss:.4f}",
                each.epochs,
                f"{each.seconds:.1f}",
            )
            for each in map(by_number.__getitem__, shown)
        ],
    )
    names = dict.fromkeys(name for number in compared for name in by_number[number].settings)
    rows = [(n, *(_setting(by_number[number], n) for number in compared)) for n in names]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    if rows:
        show_table(
            "Settings by trial, where they differ",
            ("", *(f"{n}{' (automatic)' if by_number[n].automatic else ''}" for n in compared)),
            rows,
        )
    if found.importance:
        show_table(
            "Importance of the parameters",
            ("", "share"),
            [(name, f"{share:.3f}") for name, share in found.importance.items()],
        )
    scores = [name for name in (metric, "loss") if f"test_{name}" in run.metrics]
    for name in scores:
        say(
            f"The best on test nodes, read once: {name} {figure(name, run.metrics[f'test_{name}'])}"
        )
    say(f"Settings: {found.folder}/best.toml   picture: {found.folder}/tuning.png")
    say(f"Run: {run.path}   next: fastgcn predict {run.path} --out predictions.csv")


def _setting(trial: "Trial", name: str) -> str:
    value = getattr(trial.config, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(f"{each:g}" for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _as_data(found: "Tuning") -> dict[str, Any]:
    def plain(each: "Trial") -> dict[str, Any]:
        return {
            "trial": each.number,
            f"val_{found.metric}": each.value,
            "val_loss": each.val_loss,
            "epochs": each.epochs,
            "seconds": each.seconds,
            "finished": each.finished,
            "automatic": each.automatic,
            "settings": dict(each.settings),
            **({"why": each.why} if each.why else {}),
        }

    folder, run = found.folder, found.run
    return {
        "dataset": run.metrics["dataset"],
        "metric": found.metric,
        "best": plain(found.best),
        "automatic": plain(found.automatic),
        **{n: v for n, v in run.metrics.items() if n.startswith("test_") and n != "test_classes"},
        "importance": dict(found.importance),
        "trials": [plain(each) for each in found.trials],
        "run": str(run.path),
        "config": f"{folder}/best.toml",
        "picture": f"{folder}/tuning.png",
    }
