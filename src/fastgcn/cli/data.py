"""Opening the data of a command; the commands info, import, generate and shard."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fastgcn.cli.output import console, emit_json, say, show_table, size
from fastgcn.errors import InputError
from fastgcn.text import printable

if TYPE_CHECKING:
    from fastgcn.backends.ranks.process_group import ProcessGroup
    from fastgcn.backends.ranks.shard import Shard
    from fastgcn.data.shards import StoredShard
    from fastgcn.graph.graph import Graph

T = TypeVar("T")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
SplitName = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="Which split: full, authors or public for Planetoid data; random (60/20/20, "
        "stratified by class) for any.",
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of a random split.")]
Timeout = Annotated[
    float | None,
    typer.Option(help="Under torchrun: seconds that a process waits for another; 300 by default."),
]
Out = Annotated[
    Path, typer.Option("--out", show_default=False, help="Folder to write the store to.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a store that is there already.")]


def load_graph(data: str, split: str | None = None, seed: int | None = None) -> "Graph":
    """`fastgcn.load` with the options that were given on the command line."""
    from fastgcn.data.load import load

    options: dict[str, Any] = {"split": split, "seed": seed}
    return load(data, **{key: value for key, value in options.items() if value is not None})


def launched() -> bool:
    """True if torchrun, or anything that sets its variables, has started this process."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


@contextmanager
def joined(timeout: float | None = None) -> "Iterator[ProcessGroup | None]":
    """The processes that torchrun started, or None if this one is alone.

    Only the first of them prints.
    """
    if not launched():
        yield None
        return
    from fastgcn.backends.ranks.process_group import ProcessGroup
    from fastgcn.progress import silent

    group = ProcessGroup.join() if timeout is None else ProcessGroup.join(timeout)
    if not group.is_main:
        silent()
    yield group
    # Not after a failure: another process may still wait for this one, and closing would hang.
    group.close()


def speaks(group: "ProcessGroup | None") -> bool:
    """True if this process is the one that prints and writes."""
    return group is None or group.is_main


def jointly(group: "ProcessGroup | None", what: str, do: "Callable[[], T]") -> T:
    """Call `do` in every process; if it fails in one of them, one says why and all stop."""
    return do() if group is None else group.on_all(what, do)


def open_data(
    group: "ProcessGroup | None", data: str, load: "Callable[[], Graph]", *, resplit: bool = False
) -> "tuple[Graph, Shard | None]":
    """A graph and, if several processes work on it, this one's shard.

    `load` opens `data` if that is not a folder of shards; `resplit` says that it changes the split.
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

    # Machines may have different folders under one name; if one has shards, all must use them.
    if not any(group.host_comm.gather_counts(sharded, "the data")):
        if group.size == 1:
            return load(), None
        # One process downloads or generates what is missing before the others load it.
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


def info(
    data: Annotated[str, typer.Argument(help="A data set's name, a folder or a file.")],
    split: SplitName = None,
    seed: Seed = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Read a store, shards or a run whole; compare checksums."),
    ] = False,
    json: Json = False,
) -> None:
    """Describe a graph: counts, degrees, classes, split, homophily, memory, what was cleaned."""
    from fastgcn.data.info import describe
    from fastgcn.data.shards import is_sharded
    from fastgcn.writing import recover

    if verify:
        recover(Path(data))
        verify_folder(Path(data))
        if is_sharded(Path(data)) or is_run(Path(data)):
            return
    facts = describe(load_graph(data, split, seed))
    if json:
        emit_json(facts)
    else:
        _show_facts(facts)


def verify_folder(path: Path) -> None:
    """Compare the checksums of a store, of a folder of shards or of a run, and say so."""
    from fastgcn.data.shards import is_sharded, verify_shards
    from fastgcn.data.store import is_store, verify_store

    if is_store(path):
        complete = verify_store(path)
    elif is_sharded(path):
        complete = verify_shards(path)
    elif is_run(path):
        from fastgcn.train.run import RunFolder

        complete = RunFolder.open(path).verify()
    else:
        raise InputError(f"--verify is for stores, shards and runs, and {path} is none of them")
    say(
        "All checksums match."
        if complete
        else f"{path} cannot be verified: it was written by an earlier version, without checksums"
    )


def is_run(path: Path) -> bool:
    return (path / "config.json").is_file()


def _show_facts(facts: dict[str, Any]) -> None:
    kind = "directed" if facts["directed"] else "undirected"
    kind += ", weighted" if facts["weighted"] else ""
    degree, cleaned = facts["degree"], facts["cleaned"]
    homophily = facts["homophily"]
    rows = [
        ("nodes", f"{facts['nodes']:,}"),
        (f"edges ({kind})", f"{facts['edges']:,}"),
        (f"features ({facts['features_kind']})", f"{facts['features']:,}"),
        _learned(facts),
        ("split (train / val / test)", " / ".join(f"{k:,}" for k in facts["split"].values())),
        (
            "degree (min / median / mean / max)",
            f"{degree['min']:,} / {degree['median']:g} / {degree['mean']:.1f} / {degree['max']:,}",
        ),
        ("nodes without an edge", f"{facts['isolated_nodes']:,}"),
        ("nodes without a label", f"{facts['unlabelled_nodes']:,}"),
        (
            "correlation of targets along edges"
            if facts["target"]
            else "edges within a class (homophily)",
            "-" if homophily is None else f"{homophily:.3f}",
        ),
        ("memory", size(facts["memory_bytes"])),
        (
            "cleaned: self loops / repeated edges / zero weights",
            " / ".join(f"{cleaned[k]:,}" for k in ("self_loops", "duplicates", "zero_weights")),
        ),
        ("fingerprint", facts["fingerprint"][:16]),
    ]
    show_table(facts["name"], ("", ""), rows)
    bins = list(dropwhile(lambda b: not b["nodes"], facts["degree_histogram"]))
    _show_bars(
        "Degrees",
        {
            str(b["from"]) if b["from"] == b["to"] else f"{b['from']:,}-{b['to']:,}": b["nodes"]
            for b in bins
        },
    )
    if facts["class_counts"]:
        _show_bars("Classes", facts["class_counts"], limit=20)


def _learned(facts: dict[str, Any]) -> tuple[str, Any]:
    """What a network learns of the graph: classes, or numbers."""
    target = facts["target"]
    if target is None:
        return "classes" + (" (multi-label)" if facts["multilabel"] else ""), facts["classes"]
    shown = " / ".join(f"{target[name]:.6g}" for name in ("min", "mean", "max", "deviation"))
    return "target (min / mean / max / standard deviation)", shown


def _show_bars(title: str, counts: dict[str, int], limit: int | None = None) -> None:
    """A small bar chart in text, one line a bin."""
    from rich.text import Text

    shown = dict(list(counts.items())[:limit])
    longest = max(shown.values(), default=0) or 1
    out = console()
    names = [Text(printable(name)) for name in shown]
    beside = len(f"      {longest:,}")  # blanks, and the largest number
    width = min(max((name.cell_len for name in names), default=0), max(8, out.width // 2 - beside))
    length = max(1, min(40, out.width - width - beside))
    block, sliver = ("#", ".") if out.options.ascii_only else ("█", "▏")
    out.print(Text(f"  {title}"), style="bold")
    for name, count in zip(names, shown.values(), strict=True):
        name.truncate(width, overflow="ellipsis")
        name.align("right", width)
        bar = block * round(length * count / longest) or (sliver if count else "")
        out.print(Text.assemble("  ", name, f"  {bar} {count:,}"))
    if len(counts) > len(shown):
        out.print(Text(f"  … and {len(counts) - len(shown)} more"))
    out.print()


def import_(
    source: Annotated[
        str | None, typer.Argument(help="A folder or file in a known format, or a name.")
    ] = None,
    out: Out = Path(),
    nodes: Annotated[
        str | None,
        typer.Option(help="Node table: CSV, Parquet, or FILE.duckdb:QUERY (with --edges)."),
    ] = None,
    edges: Annotated[
        list[str] | None,
        typer.Option(help="Edge table (with --nodes); several times for several types of edges."),
    ] = None,
    id_column: Annotated[str, typer.Option("--id", help="Node table: column of ids.")] = "id",
    label: Annotated[
        str | None, typer.Option(help="Node table: column of labels (several: a,b,c).")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="What labels are: classification, regression (numbers to predict), or auto."
        ),
    ] = None,
    split_column: Annotated[
        str | None, typer.Option("--split-column", help="Node table: column of train/val/test.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Node table: the columns to use, a,b_*; all others by default."),
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Node table: columns not to use, a,b_*.")] = None,
    numeric: Annotated[
        str | None, typer.Option(help="Columns of numbers; other text in them counts as missing.")
    ] = None,
    categorical: Annotated[
        str | None, typer.Option(help="Columns of categories, such as codes that are numbers.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Columns of words.")] = None,
    date: Annotated[str | None, typer.Option(help="Columns of dates.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="Scale numbers: auto, standard, quantile or none.")
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help="Use the encoders of this store or run.")
    ] = None,
    structure: Annotated[
        int | None, typer.Option(help="Make so many features of the edges, such as 64.")
    ] = None,
    degree: Annotated[
        bool | None,
        typer.Option(
            "--degree/--no-degree",
            help="The node's degree as a feature; by default if columns are encoded.",
        ),
    ] = None,
    source_column: Annotated[
        str, typer.Option("--source", help="Edge table: column of the first end.")
    ] = "source",
    target_column: Annotated[
        str, typer.Option("--target", help="Edge table: column of the second end.")
    ] = "target",
    weight: Annotated[str | None, typer.Option(help="Edge table: column of weights.")] = None,
    default_weight: Annotated[
        float | None, typer.Option(help="The weight of edges that have none.")
    ] = None,
    type_column: Annotated[str | None, typer.Option(help="Edge table: column of types.")] = None,
    types: Annotated[
        str | None, typer.Option(help="Types of edges to use, with weights: card=0.5,transfer=1.")
    ] = None,
    drop_unknown: Annotated[
        bool, typer.Option("--drop-unknown", help="Leave out edges of ids that are no nodes.")
    ] = False,
    add_unknown: Annotated[
        bool, typer.Option("--add-unknown", help="Make nodes of such ids, without features.")
    ] = False,
    directed: Annotated[
        bool | None,
        typer.Option(
            "--directed/--undirected", help="Keep directions, or store every edge both ways."
        ),
    ] = None,
    split: SplitName = None,
    seed: Seed = None,
    name: Annotated[str | None, typer.Option(help="What to call the graph.")] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory that sorting the edges may use, such as 1GB.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Turn a graph in any known format, or a node and an edge table, into a store folder."""
    from fastgcn.data.load import import_graph
    from fastgcn.data.store import open_store

    if out == Path():
        raise InputError("--out FOLDER is needed: where the store goes")
    if drop_unknown and add_unknown:
        raise InputError("--drop-unknown and --add-unknown exclude each other")
    options: dict[str, Any] = {
        "id": None if id_column == "id" else id_column,
        "label": label,
        "task": task,
        "split_column": split_column,
        "features": features,
        "drop": drop,
        "numeric": numeric,
        "categorical": categorical,
        "text": text,
        "date": date,
        "scale": scale,
        "like": like,
        "structure": structure,
        "degree": degree,
        "default_weight": default_weight,
        "type_column": type_column,
        "types": types,
        "unknown": "drop" if drop_unknown else "add" if add_unknown else None,
        "source": None if source_column == "source" else source_column,
        "target": None if target_column == "target" else target_column,
        "weight": weight,
        "directed": directed,
        "split": split,
        "seed": seed,
        "name": name,
        "memory": memory,
    }
    given = {key: value for key, value in options.items() if value is not None}
    import_graph(source, nodes, _one_or_several(edges), out, force=force, **given)
    _report_store(open_store(out), out, json)


def _one_or_several(edges: list[str] | None) -> Any:
    return edges[0] if edges is not None and len(edges) == 1 else edges or None


def generate(
    out: Annotated[Path, typer.Argument(help="Folder to write the store to.")],
    preset: Annotated[
        str | None, typer.Option(help="Start from reddit-sim, two-hop-sim or products-sim.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes.")] = None,
    edges: Annotated[int | None, typer.Option(help="Undirected edges.")] = None,
    features: Annotated[int | None, typer.Option(help="Features a node.")] = None,
    classes: Annotated[int | None, typer.Option(help="Classes.")] = None,
    train: Annotated[int | None, typer.Option(help="Training nodes; 60 % if not said.")] = None,
    val: Annotated[int | None, typer.Option(help="Validation nodes; 20 % if not said.")] = None,
    test: Annotated[int | None, typer.Option(help="Test nodes; the rest if not said.")] = None,
    homophily: Annotated[
        float | None, typer.Option(help="Share of edges within a class, in expectation.")
    ] = None,
    signal: Annotated[
        float | None, typer.Option(help="How far apart the classes' features are.")
    ] = None,
    exponent: Annotated[
        float | None, typer.Option(help="Exponent of the degrees' power law.")
    ] = None,
    max_degree: Annotated[int | None, typer.Option(help="Largest degree aimed at.")] = None,
    skew: Annotated[
        float | None, typer.Option(help="How unequal classes are; 0 makes them equal.")
    ] = None,
    stray: Annotated[
        float | None, typer.Option(help="Share of nodes with another class's edges.")
    ] = None,
    silent: Annotated[
        float | None,
        typer.Option(help="Share of nodes without features; only these join nodes of a class."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="One seed, one graph.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call the graph.")] = None,
    memory: Annotated[
        str, typer.Option(help="Memory for edges and features, beside 200 bytes a node.")
    ] = "1GB",
    force: Force = False,
    json: Json = False,
) -> None:
    """Generate a synthetic graph with communities and power-law degrees, straight to a store."""
    from fastgcn.data.generate import generate as write
    from fastgcn.data.generate_config import config_from
    from fastgcn.data.store import open_store
    from fastgcn.memory import memory_bytes

    fields = {
        "nodes": nodes,
        "edges": edges,
        "features": features,
        "classes": classes,
        "train": train,
        "val": val,
        "test": test,
        "homophily": homophily,
        "feature_signal": signal,
        "degree_exponent": exponent,
        "max_degree": max_degree,
        "class_skew": skew,
        "stray": stray,
        "silent": silent,
        "seed": seed,
        "name": name,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    write(config_from(preset, **given), out, force=force, memory=memory_bytes(memory))
    _report_store(open_store(out), out, json)


def _report_store(graph: "Graph", out: Path, json: bool) -> None:
    if json:
        emit_json(
            {
                "store": str(out),
                "name": graph.name,
                "nodes": graph.n_nodes,
                "edges": graph.n_edges,
                "features": graph.n_features,
                "classes": graph.n_classes,
                "task": graph.task,
                "fingerprint": graph.stored_fingerprint,
                "notes": [] if graph.imported is None else graph.imported["notes"],
            }
        )
    else:
        say(str(graph))
        say(f"written to {out}; next: fastgcn info {out}")


def shard(
    data: Annotated[str, typer.Argument(help="A store, or anything that can be trained on.")],
    parts: Annotated[
        int, typer.Option(help="How many parts: as many processes as that, or fewer.")
    ] = 2,
    by: Annotated[
        str,
        typer.Option(help="What parts have equally much of: train (nodes), nodes, or edges."),
    ] = "train",
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; NAME-PARTS-parts by default.")
    ] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Cut a graph into ranges of nodes, each a folder that a process trains on without the rest."""
    from fastgcn.data.shards import shard as write

    graph = load_graph(data, split, split_seed)
    folder = out or Path(f"{graph.name}-{parts}-parts")
    bounds = write(graph, parts, folder, by=by, force=force).tolist()
    sizes = [stop - first for first, stop in pairwise(bounds)]
    if json:
        emit_json({"out": str(folder), "parts": parts, "by": by, "nodes": sizes})
        return
    say(f"{parts} parts of {min(sizes):,} to {max(sizes):,} nodes written to {folder}")
    say(
        f"Next: torchrun --rdzv-backend loopback --nproc-per-node {parts} -m fastgcn train {folder}"
    )
