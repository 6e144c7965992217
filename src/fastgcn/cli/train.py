"""Commands under torchrun: joining the other processes, and opening one's shard of the data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fastgcn.backends.ranks import DEFAULT_TIMEOUT, launched
from fastgcn.cli.data import Json, Seed, SplitName, load_graph
from fastgcn.cli.output import emit_json, say, show_table
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.backends.ranks.process_group import ProcessGroup
    from fastgcn.backends.ranks.shard import Shard
    from fastgcn.config import TrainConfig
    from fastgcn.data.shards import StoredShard
    from fastgcn.graph.graph import Graph
    from fastgcn.train.run import Run

T = TypeVar("T")

Timeout = Annotated[
    float, typer.Option(help="Under torchrun: seconds that a process waits for another.")
]


@contextmanager
def joined(timeout: float = DEFAULT_TIMEOUT) -> "Iterator[ProcessGroup | None]":
    """The processes that torchrun started, None where this one is alone; all but the first are
    silent."""
    if not launched():
        yield None
        return
    from fastgcn.backends.ranks.process_group import ProcessGroup
    from fastgcn.progress import silent

    group = ProcessGroup.join(timeout)
    if not group.is_main:
        silent()
    yield group
    # Not after a failure: a process that still waits for us would never let go.
    group.close()


def speaks(group: "ProcessGroup | None") -> bool:
    """Whether this process is the one that prints and writes."""
    return group is None or group.is_main


def jointly(group: "ProcessGroup | None", what: str, do: "Callable[[], T]") -> T:
    """`do()`; where several processes do it and it fails, one of them says why."""
    return do() if group is None else group.on_all(what, do)


def open_data(
    group: "ProcessGroup | None", data: str, load: "Callable[[], Graph]", *, resplit: bool = False
) -> "tuple[Graph, Shard | None]":
    """A graph and, where several processes work on it, this one's shard.

    `load` opens `data` where that is no folder of shards; `resplit` says that it changes the split.
    """
    from fastgcn.data.shards import is_sharded, open_parts

    folder = Path(data).expanduser()
    sharded = is_sharded(folder)
    if group is None:
        if sharded:
            raise InputError(
                f"{data} is a folder of shards, for several processes: torchrun "
                "--nproc-per-node PARTS -m fastgcn train ...; train on the store in one process"
            )
        return load(), None
    from fastgcn.backends.ranks.shard import Shard

    # Machines may have different folders under one name, and all must take the same way.
    if not any(group.host_comm.gather_counts(sharded, "the data")):
        if group.size == 1:
            return load(), None
        # What must be fetched or generated first is, once.
        group.on_all("the data", lambda: load() if group.is_main else None)
        shard = group.on_all("the data", lambda: Shard.of_graph(load(), group))
        return shard.graph, shard

    def own_part() -> "StoredShard":
        if resplit:
            raise InputError(
                f"{data} was sharded with its split; leave --split and --split-seed out"
            )
        return open_parts(folder, group.rank, group.size)

    part = group.on_all("the data", own_part)
    fingerprint, bounds = part.outline.stored_fingerprint, part.bounds.tolist()
    group.check_equal("data", {"fingerprint": fingerprint, "bounds": bounds})
    return part.outline, Shard.of_part(part, group)


def run_folder(group: "ProcessGroup | None", asked: Path | None, name: str) -> tuple[Path, bool]:
    """The folder of a run, and whether to continue the run that is in it.

    That is so where these processes have been started in the place of ones that began it, and
    never for a run that was there before: torchrun's own store knows.
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


def train(
    ctx: typer.Context,
    data: Annotated[
        str | None, typer.Argument(help="A data set's name, or a folder or file to load.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Settings to start from: best (the default), or paper."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="fastgcn, fastgcn-uniform, fastgcn-transductive, authors-code, gcn, gcn-batched, "
            "graphsage-gcn or graphsage-mean."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training nodes.")] = None,
    hidden: Annotated[str | None, typer.Option(help="Hidden widths, such as 128 or 64,64.")] = None,
    samples: Annotated[
        str | None, typer.Option(help="Vertices drawn a layer, such as 400 or 400,200; or auto.")
    ] = None,
    distribution: Annotated[
        str | None, typer.Option(help="importance, uniform, flat, optimal or ladies.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Training nodes a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's step size.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Shard of entries zeroed.")] = None,
    precompute: Annotated[
        bool | None, typer.Option(help="Compute ÂX once, so that the first layer is exact.")
    ] = None,
    inductive: Annotated[
        bool | None,
        typer.Option("--inductive/--transductive", help="Train without the other nodes, or with."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, KEY=VALUE; repeatable.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the run; runs/NAME-N by default.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the interrupted run in this folder.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; 0 = all.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="What the process may take, such as 4GB; what does not fit is on disk."),
    ] = None,
    inputs_dtype: Annotated[
        str | None, typer.Option(help="What ÂX is kept in: float32, float16 or bfloat16.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="On a GPU, where the features are: auto, device or host.")
    ] = None,
    products: Annotated[
        str | None, typer.Option(help="On a GPU, what matrix products round to: tf32 or float32.")
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard events.")] = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Train a classifier on a graph's training nodes; validation nodes choose the weights kept."""
    if (data is None) == (resume is None):
        raise InputError("give either DATA to train on or --resume RUN to continue")
    ignored = _given(ctx, but=("resume", "tensorboard", "timeout", "json"))
    if resume is not None and ignored:
        raise InputError(f"a run continues with its own settings; leave out {', '.join(ignored)}")
    from fastgcn.config import SETTINGS
    from fastgcn.settings import read_assignments, read_toml
    from fastgcn.train.presets import resolve

    with joined(timeout) as group:
        again, folder, shard = resume is not None, resume, None
        if data is not None:
            resplit = split is not None or split_seed is not None
            graph, shard = open_data(
                group, data, lambda: load_graph(data, split, split_seed), resplit=resplit
            )
            folder, again = run_folder(group, run_dir, graph.name)
        assert folder is not None
        run: Run | None
        if again:
            run = _resume(folder, tensorboard, json, group)
        else:
            flags: dict[str, Any] = {
                "preset": preset,
                "method": method,
                "seed": seed,
                "epochs": epochs,
                "hidden": None if hidden is None else SETTINGS["hidden"].parse(hidden),
                "samples": None if samples is None else SETTINGS["samples"].parse(samples),
                "distribution": distribution,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "dropout": dropout,
                "precompute": precompute,
                "inductive": inductive,
                "device": device,
                "threads": threads,
                "memory": memory,
                "inputs_dtype": inputs_dtype,
                "features": features,
                "products": products,
            }
            chosen = jointly(
                group,
                "settings",
                lambda: resolve(
                    graph,
                    None,
                    (read_toml(config) if config else {})
                    | read_assignments(settings or ())
                    | {name: value for name, value in flags.items() if value is not None},
                ),
            )
            run = _train(graph, chosen, folder, tensorboard, json, shard)
    if run is None or not speaks(group):
        return
    if json:
        emit_json(run.metrics | {"run": str(run.path)})
    else:
        show_result(run)


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
    config: "TrainConfig",
    run_dir: Path,
    tensorboard: Path | None,
    json: bool,
    shard: "Shard | None",
) -> "Run":
    from fastgcn.train.loop import fit

    if shard is None:
        config = _with_sizes(graph, config)
    elif not shard.group.is_main:
        return fit(graph, config, run_dir=run_dir, shard=shard)
    _announce(graph, config)
    with _epoch_view(config.epochs, tensorboard, run_dir, json) as on_epoch:
        return fit(graph, config, run_dir=run_dir, callbacks=[on_epoch], shard=shard)


def _resume(
    run_dir: Path, tensorboard: Path | None, json: bool, group: "ProcessGroup | None"
) -> "Run | None":
    """The run when it is done; None where another process has it."""
    from fastgcn.train.loop import resume
    from fastgcn.train.run import RunFolder

    def opened() -> tuple[dict[str, Any], bool]:
        folder = RunFolder.open(run_dir)
        return folder.about, folder.finished

    about, finished = opened() if group is None else group.broadcast("the run", opened)
    if finished:
        return RunFolder(run_dir, about).load() if speaks(group) else None
    source = about["data"] or {}
    graph, shard = open_data(
        group, str(source.get("data", "")), lambda: load_source(source, run_dir)
    )
    if not speaks(group):
        return resume(run_dir, graph, shard=shard)
    config = RunFolder(run_dir, about).config
    _announce(graph, config)
    with _epoch_view(config.epochs, tensorboard, run_dir, json) as on_epoch:
        return resume(run_dir, graph, callbacks=[on_epoch], shard=shard)


def load_source(source: dict[str, Any] | None, run_dir: Path) -> "Graph":
    """The graph a run was trained on, loaded as it was then."""
    from fastgcn.data.load import load

    if not source:
        raise InputError(f"{run_dir} was trained on a graph made in memory; name the data to use")
    options = dict(source)
    return load(options.pop("data"), **options)


def _announce(graph: "Graph", config: "TrainConfig") -> None:
    parts = " / ".join(f"{len(part):,}" for _, part in graph.split.items())
    say(f"{graph}, split {parts}")
    say(
        f"training {config.method}, {config.layers} layers of width "
        f"{', '.join(map(str, config.hidden_sizes)) or 'none'}: {_sampling(config)}, "
        f"{'ÂX precomputed' if config.precompute else 'nothing precomputed'}, "
        f"{'inductive' if config.inductive else 'transductive'}; "
        f"batch {'all' if config.method == 'gcn' else f'{config.batch_size:,}'}, "
        f"up to {config.epochs} epochs, learning rate {config.learning_rate:g}, seed {config.seed}"
    )


def _with_sizes(graph: "Graph", config: "TrainConfig") -> "TrainConfig":
    """The settings with numbers for `samples = "auto"`, and a line that says them."""
    if config.samples != "auto" or config.method != "fastgcn":
        return config
    from fastgcn.diagnose.auto import choose_samples

    choice = choose_samples(graph, config)
    say(choice.sentence(config.target_error))
    return config.replace(samples=choice.samples)


def _sampling(config: "TrainConfig") -> str:
    if config.neighbor_sampling:
        return f"{' and '.join(map(str, config.fanouts))} neighbours a node, from the input up"
    if not config.layer_samples:
        return "no sampling"
    drawn = ", ".join(f"{t:,}" for t in config.layer_samples)
    return f"{config.distribution} sampling of {drawn} vertices a layer"


def _epoch_view(epochs: int, tensorboard: Path | None, run_dir: Path, json: bool) -> Any:
    from fastgcn.cli.output import EpochView

    return EpochView(epochs, tensorboard, run_dir, show=not json)


def show_result(run: "Run") -> None:
    """The tables at the end: scores, classes, where the time went, and where the run is."""
    result = run.metrics
    rows = [
        (part, *(f"{result[f'{part}_{name}']:.4f}" for name in ("micro_f1", "macro_f1", "loss")))
        for part in ("val", "test")
        if f"{part}_micro_f1" in result
    ]
    show_table(
        f"{result['dataset']}: epoch {result['best_epoch']} of {result['epochs']} kept",
        ("", "micro-F1", "macro-F1", "loss"),
        rows,
    )
    if "test_classes" in result:
        show_classes("test", result["test_classes"], run.class_names)
    purposes = ("precompute", "sampling", "compute", "evaluation")
    total = sum(result[f"{purpose}_seconds"] for purpose in purposes)
    show_table(
        "Time",
        ("", "seconds", "shard"),
        [
            (p, f"{result[f'{p}_seconds']:.2f}", f"{result[f'{p}_seconds'] / total:.0%}")
            for p in purposes
        ]
        + [("a batch", f"{result['seconds_per_batch']:.5f}", "")],
    )
    if run.path is not None:
        say(f"Run: {run.path}   next: fastgcn predict {run.path} --out predictions.csv")


def show_classes(part: str, classes: dict[str, list[float]], names: Any) -> None:
    """Scores by class on a part of the split."""
    count = len(classes["f1"])
    show_table(
        f"{part} nodes by class".capitalize(),
        ("class", "precision", "recall", "F1", "nodes"),
        [
            (
                names[c] if names is not None else c,
                *(f"{classes[score][c]:.3f}" for score in ("precision", "recall", "f1")),
                f"{classes['support'][c]:,}",
            )
            for c in range(count)
        ],
    )
