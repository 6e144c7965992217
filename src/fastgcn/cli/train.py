"""`fastgcn train`: its flags are made from the declaration of the settings."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from fastgcn.cli.data import (
    Json,
    Seed,
    SplitName,
    Timeout,
    joined,
    jointly,
    load_graph,
    open_data,
    speaks,
)
from fastgcn.cli.ending import signals
from fastgcn.cli.output import EpochView, emit_json, say, show_result
from fastgcn.config import SETTINGS
from fastgcn.errors import InputError, nearest
from fastgcn.settings import Setting, read_assignments, read_toml

if TYPE_CHECKING:
    from fastgcn.backends.ranks.process_group import ProcessGroup
    from fastgcn.backends.ranks.shard import Shard
    from fastgcn.config import TrainConfig
    from fastgcn.graph.graph import Graph
    from fastgcn.network import Network
    from fastgcn.train.callbacks import Callback
    from fastgcn.train.race import Choice
    from fastgcn.train.run import Run


def run_folder(group: "ProcessGroup | None", asked: Path | None, name: str) -> tuple[Path, bool]:
    """The folder of a run, and True if the run in it is to be continued.

    A run is continued if torchrun has restarted the processes that began it, as torchrun's own
    store shows. A run from before that is never continued.
    """
    key = f"run of {name} in {asked}"

    def choose() -> tuple[str, bool]:
        begun = None if group is None else group.recall(key)
        if begun is not None and (Path(begun) / "config.json").exists():
            return begun, True
        numbered = (Path("runs") / f"{name}-{number}" for number in count(1))
        path = asked or next(path for path in numbered if not path.exists())
        if group is not None and not (path / "config.json").exists():
            group.remember(key, str(path))
        return str(path), False

    path, again = choose() if group is None else group.broadcast("the run's folder", choose)
    return Path(path), again


class GroupedHelp(TyperCommand):
    """A command whose `--help` lists the settings of each group under a heading of its own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            heading = getattr(parameter, "rich_help_panel", None) or usual
            if record is not None:
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for each setting; it gets their values as `**flags`."""
    signature = inspect.signature(command, eval_str=True)
    *own, _ = signature.parameters.values()
    general = [_flag(each) for each in SETTINGS.values() if each.group == "General"]
    others = [_flag(each) for each in SETTINGS.values() if each.group != "General"]
    # `--help` lists flags in this order.
    parameters = [*own[:2], *general, *own[2:], *others]
    by_name = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = signature.replace(parameters=by_name)  # type: ignore[attr-defined]
    return command


def _flag(setting: Setting) -> inspect.Parameter:
    """The flag of a setting; its value is None if it is not given."""
    text = setting.help
    if not setting.automatic and setting.default is not None:
        text += f" [default: {setting.default_text}]"
    names = [setting.flag] if setting.kind is bool and "/" in setting.flag else []
    option = typer.Option(
        *names,
        help=text,
        rich_help_panel=None if setting.group == "General" else f"{setting.group} settings",
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[setting.flag_type | None, option],
    )


def given_settings(
    file: Path | None, assignments: Sequence[str] | None, flags: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings given in a file, by `--set` and by flags; a later one overrides."""
    parsed = {
        name: SETTINGS[name].parse(value) if isinstance(value, str) else value
        for name, value in flags.items()
        if value is not None
    }
    return (read_toml(file) if file else {}) | read_assignments(assignments or ()) | parsed


@with_settings
def train(
    ctx: typer.Context,
    data: Annotated[
        str | None, typer.Argument(help="A data set's name, or a folder or file to load.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting as KEY=VALUE in TOML's syntax; repeatable."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the run; runs/NAME-N by default.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue the run in this folder; a finished one with more --epochs."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="Start from the weights and settings of this run."),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            help="Log each epoch: tensorboard (in RUN/tensorboard), mlflow or wandb; repeatable."
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(hidden=True, help="--log tensorboard in another folder.")
    ] = None,
    timeout: Timeout = None,
    json: Json = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Skip the race of candidates: --preset fast.")
    ] = False,
    **flags: Any,
) -> None:
    """Train a network on a graph's training nodes; validation nodes choose the weights kept.

    Settings that are not given are chosen for the graph, by a race of a few candidates on its
    validation nodes, or by --preset.
    """
    if fast:
        if flags.get("preset") not in (None, "fast"):
            raise InputError(f"--fast is --preset fast, but --preset {flags['preset']} is given")
        flags["preset"] = "fast"
    if (data is None) == (resume is None):
        raise InputError("give either DATA to train on or --resume RUN to continue")
    ignored = _given(ctx, but=("resume", "epochs", "log", "tensorboard", "timeout", "json"))
    if resume is not None and ignored:
        raise InputError(f"a run continues with its own settings; leave out {', '.join(ignored)}")
    from fastgcn.train.presets import resolve
    from fastgcn.train.race import Choice, choose
    from fastgcn.train.run import Run, RunFolder

    with joined(timeout) as group:
        again, folder, shard = resume is not None, resume, None
        if data is not None:
            resplit = split is not None or split_seed is not None
            graph, shard = open_data(
                group, data, lambda: load_graph(data, split, split_seed), resplit=resplit
            )
            folder, again = run_folder(group, run_dir, graph.name)
        assert folder is not None
        logs = jointly(
            group, "loggers", lambda: loggers(log, tensorboard, folder) if speaks(group) else []
        )
        run: Run | None
        if again:
            more = flags.get("epochs") if resume is not None else None
            run = _resume(folder, logs, json, group, more)
        else:

            def chosen() -> "Choice":
                given = given_settings(config, assignments, flags)
                if begun is not None:
                    return Choice(begun.config.replace(**given))
                if shard is None:
                    RunFolder.check_free(path)
                    return choose(graph, None, given)
                return Choice(resolve(graph, None, given, sampled=True))

            path = folder
            begun = None if start is None else jointly(group, "the run", lambda: Run.load(start))
            choice = jointly(group, "settings", chosen)
            model = None if begun is None else begun.model
            run = _train(graph, choice, folder, logs, json, shard, model)
    if run is None or not speaks(group):
        return
    if json:
        emit_json(run.metrics | {"run": str(run.path)})
    else:
        show_result(run)


def loggers(
    names: Sequence[str] | None, tensorboard: Path | None, run_dir: Path
) -> "list[Callback]":
    """The loggers that are asked for."""
    from fastgcn.train.loggers import MLflowLogger, TensorBoardLogger, WandbLogger

    known: dict[str, Callable[[], Callback]] = {
        "tensorboard": lambda: TensorBoardLogger(tensorboard or run_dir / "tensorboard"),
        "mlflow": lambda: MLflowLogger(name=run_dir.name),
        "wandb": lambda: WandbLogger(name=run_dir.name),
    }
    asked = dict.fromkeys([*(["tensorboard"] if tensorboard else []), *(names or ())])
    for name in asked:
        if name not in known:
            raise InputError(
                f"--log must be {', '.join(known)}, got {name!r}{nearest(name, known)}"
            )
    return [known[name]() for name in asked]


def _given(ctx: typer.Context, *, but: tuple[str, ...]) -> list[str]:
    """The options that were given on the command line."""
    return [
        option.opts[0]
        for option in ctx.command.params
        if option.name is not None
        and option.name not in but
        and getattr(ctx.get_parameter_source(option.name), "name", "") == "COMMANDLINE"
    ]


def _train(
    graph: "Graph",
    choice: "Choice",
    run_dir: Path,
    logs: "Sequence[Callback]",
    json: bool,
    shard: "Shard | None",
    model: "Network | None" = None,
) -> "Run":
    from fastgcn.train.loop import fit_choice

    fit = partial(fit_choice, graph, choice, run_dir=run_dir, shard=shard, model=model)
    if shard is not None and not shard.group.is_main:
        with signals.at_epochs() as stop:
            return fit(callbacks=[stop])
    _announce(graph, choice.config)
    view = EpochView(choice.config.epochs, run_dir, show=not json)
    with signals.at_epochs() as stop, view as on_epoch:
        return fit(callbacks=[on_epoch, *logs, stop])


def _resume(
    run_dir: Path,
    logs: "Sequence[Callback]",
    json: bool,
    group: "ProcessGroup | None",
    epochs: int | None = None,
) -> "Run | None":
    """The finished run; None in processes that do not keep it."""
    from fastgcn.data.load import load_again
    from fastgcn.train.loop import resume
    from fastgcn.train.run import RunFolder

    def opened() -> tuple[dict[str, Any], bool]:
        folder = RunFolder.to_resume(run_dir)
        return folder.about, folder.finished

    about, finished = opened() if group is None else group.broadcast("the run", opened)
    if finished and epochs is None:
        return RunFolder(run_dir, about).load() if speaks(group) else None
    source = about["data"] or {}
    graph, shard = open_data(
        group, str(source.get("data", "")), lambda: load_again(source, run_dir)
    )
    if not speaks(group):
        with signals.at_epochs() as stop:
            return resume(run_dir, graph, callbacks=[stop], shard=shard)
    config = RunFolder(run_dir, about).config
    _announce(graph, config)
    view = EpochView(epochs or config.epochs, run_dir, show=not json)
    with signals.at_epochs() as stop, view as on_epoch:
        return resume(run_dir, graph, callbacks=[on_epoch, *logs, stop], shard=shard, epochs=epochs)


def _announce(graph: "Graph", config: "TrainConfig") -> None:
    parts = " / ".join(f"{len(part):,}" for _, part in graph.split.items())
    say(f"{graph}, split {parts}")
    say(
        f"training {config.method}, {config.layers} layers of width "
        f"{', '.join(map(str, config.hidden_sizes)) or 'none'}: {_sampling(config)}, "
        f"{'ÂX precomputed' if config.precompute else 'nothing precomputed'}, "
        f"{'inductive' if config.inductive else 'transductive'}; "
        f"batch {'all' if config.method == 'gcn' else f'{config.batch_size:,}'}, "
        f"{f'{config.ensemble} networks, ' if config.ensemble > 1 else ''}"
        f"up to {config.epochs} epochs, learning rate {config.learning_rate:g}, seed {config.seed}"
    )


def _sampling(config: "TrainConfig") -> str:
    if config.neighbor_sampling:
        return f"{' and '.join(map(str, config.fanouts))} neighbours a node, from the input up"
    if config.method == "gcn":
        return "full passes"
    if not config.layer_samples:
        return "no sampling"
    drawn = ", ".join(f"{t:,}" for t in config.layer_samples)
    return f"{config.distribution} sampling of {drawn} vertices a layer"
