"""`evaluate`, `predict` and `embed`: a run applied to a graph, in one process or under torchrun."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgcn.cli.data import (
    Json,
    Seed,
    SplitName,
    joined,
    jointly,
    load_graph,
    open_data,
    speaks,
)
from fastgcn.cli.output import emit_json, figure, say, show_classes, show_table
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.arrays import FloatArray, IntArray
    from fastgcn.backends.ranks.process_group import ProcessGroup
    from fastgcn.backends.ranks.shard import Shard
    from fastgcn.graph.graph import Graph
    from fastgcn.train.run import Run

Rows = Iterator[tuple[list[Any], "FloatArray"]]

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
Data = Annotated[str | None, typer.Argument(help="The graph to use; by default the run's own.")]
Nodes = Annotated[
    str | None,
    typer.Option(
        help="Which nodes: all (the default), unlabelled, train, val, test, own ids with commas, "
        "or @FILE with one id per line."
    ),
]
Memory = Annotated[
    str, typer.Option(help="What the process may take, such as 4GB; the rest is on disk.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; all by default.")]
OutFile = Annotated[
    Path,
    typer.Option(
        "--out", show_default=False, help="File to write; its ending is its format; - is stdout."
    ),
]
NewNodes = Annotated[str | None, typer.Option(help="Table of nodes that the graph does not have.")]
NewEdges = Annotated[
    str | None, typer.Option(help="Table of the new nodes' edges, to old nodes or new.")
]
DefaultWeight = Annotated[
    float | None, typer.Option(help="The weight of new edges that have none.")
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw",
        help="CSV: write texts that begin with = + - @ as they are. By default an apostrophe "
        "keeps a spreadsheet from calculating them.",
    ),
]


@contextmanager
def _opened(
    run_path: Path,
    data: str | None,
    split: str | None,
    seed: int | None,
    device: str,
    *,
    alone: dict[str, bool],
    out: tuple[Path, tuple[str, ...], bool] | None = None,
) -> "Iterator[tuple[Run, Graph | Shard, bool]]":
    """A run, the graph to apply it to, and True if this process writes the results.

    If there are several processes, each gets its shard of the graph. `alone` maps each option
    that only a single process has to True if it was given. `out` is the file to write, its
    allowed endings, and True if JSON is asked for; it is checked before anything is computed.
    """
    with joined() as group:

        def check() -> None:
            given = [name for name, is_given in alone.items() if is_given]
            if group is not None and group.size > 1 and given:
                verb = "is" if len(given) == 1 else "are"
                raise InputError(
                    f"{' and '.join(given)} {verb} for a single process; run it without torchrun"
                )
            if out is not None and speaks(group):
                _check_out(*out)

        jointly(group, "options", check)
        run, graph, shard = _open(group, run_path, data, split, seed)
        if shard is None:
            _use_device(run, device)
        yield run, graph if shard is None else shard, speaks(group)


def _alone(
    memory: str,
    device: str,
    threads: int | None,
    *,
    samples: str | None = None,
    new: tuple[str | None, str | None] = (None, None),
) -> dict[str, bool]:
    """Options of a single process: several share the machine's memory and cores."""
    return {
        "--samples": samples is not None,
        "--new-nodes": new[0] is not None,
        "--new-edges": new[1] is not None,
        "--memory": memory != "auto",
        "--device": device not in ("auto", "cpu"),
        "--threads": threads is not None,
    }


def _check_out(out: Path, endings: tuple[str, ...], json: bool) -> None:
    """Refuse a file that cannot be written."""
    if out == Path():
        if json:
            return  # the rows are in the JSON
        raise InputError(
            "--out FILE is needed: .parquet or .csv (embed also .npy), or - for standard output"
        )
    if out == Path("-"):
        if json:
            raise InputError("--json has the rows if --out is left out; leave out --out -")
        return
    if out.suffix not in endings:
        *others, last = endings
        raise InputError(f"--out must end in {', '.join(others)} or {last}, got {out.name!r}")
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent} to write {out.name} into")


def open_run(
    run_path: Path, data: str | None, split: str | None, seed: int | None, device: str = "cpu"
) -> "tuple[Run, Graph]":
    """A run on its device, and the graph to apply it to, in a single process."""
    run, graph, _ = _open(None, run_path, data, split, seed)
    _use_device(run, device)
    return run, graph


def _use_device(run: "Run", device: str) -> None:
    from fastgcn.machine import choose_device

    run.model.to(choose_device(device))


def _open(
    group: "ProcessGroup | None",
    run_path: Path,
    data: str | None,
    split: str | None,
    seed: int | None,
) -> "tuple[Run, Graph, Shard | None]":
    """A run, a graph and this process's shard of it; all processes must have the same."""
    from fastgcn.data.layout import fingerprint
    from fastgcn.data.load import load_again
    from fastgcn.train.run import Run

    run = jointly(group, "the run", lambda: Run.load(run_path))
    source = None if run.source is None else dict(run.source)
    if data is None:
        where = str((source or {}).get("data", ""))
        graph, shard = open_data(group, where, lambda: load_again(source, run_path))
    else:
        resplit = split is not None or seed is not None
        graph, shard = open_data(
            group, data, lambda: load_graph(data, split, seed), resplit=resplit
        )
    if group is not None and shard is not None:
        group.check_equal("run", _digest(run))
        group.check_equal("data", fingerprint(graph))
    # Not checked for the run's own data in one process: it may take as long as predicting.
    known = data is not None or shard is not None
    if known and speaks(group) and fingerprint(graph) != run.fingerprint:
        say(f"Note: {graph.name} is not the graph (or the split) that the run was trained on.")
    return run, graph, shard


def _digest(run: "Run") -> str:
    """A name for the weights of a run."""
    from hashlib import sha256  # takes longer to load than most of `--help`

    found = sha256()
    for name, tensor in sorted(run.model.state_dict().items()):
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def held_to(threads: int | None) -> AbstractContextManager[None]:
    """Run on this many threads, if a number was given."""
    from fastgcn.machine import thread_count

    return nullcontext() if threads is None else thread_count(threads)


def evaluate(
    run_path: RunPath,
    data: Data = None,
    part: Annotated[str, typer.Option(help="Part of the split: train, val or test.")] = "test",
    split: SplitName = None,
    split_seed: Seed = None,
    memory: Memory = "auto",
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Score a run on a part of a graph's split, by the full network."""
    from fastgcn.infer.predict import evaluate as score
    from fastgcn.infer.predict import graph_of

    if part not in ("train", "val", "test"):
        raise InputError(f"--part must be train, val or test, got {part!r}")
    alone = _alone(memory, device, threads)
    opened = _opened(run_path, data, split, split_seed, device, alone=alone)
    with opened as (run, graph, writes), held_to(threads):
        metrics = score(run, graph, part, memory=memory)
    if not writes:
        return
    name = graph_of(graph).name
    classes = {n: list(getattr(metrics, n)) for n in ("precision", "recall", "f1", "support")}
    of_classes = run.model.target is None
    if json:
        emit_json(
            {"run": str(run_path), "dataset": name, "part": part, "nodes": metrics.n_nodes}
            | metrics.scores()
            | ({"classes": classes} if of_classes else {})
        )
        return
    show_table(
        f"{name}: {metrics.n_nodes:,} {part} nodes",
        ("", "score"),
        [(name, figure(name, value)) for name, value in metrics.scores().items()],
    )
    if of_classes:
        show_classes(part, classes, run.class_names)


def predict(
    run_path: RunPath,
    data: Data = None,
    out: OutFile = Path(),
    nodes: Nodes = None,
    samples: Annotated[
        str | None, typer.Option(help="Sample this many vertices a layer instead of using all.")
    ] = None,
    new_nodes: NewNodes = None,
    new_edges: NewEdges = None,
    default_weight: DefaultWeight = None,
    split: SplitName = None,
    split_seed: Seed = None,
    top: Annotated[
        int | None, typer.Option(help="Write only the K most probable classes of each node.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of sampled prediction.")] = 0,
    memory: Memory = "auto",
    device: Device = "auto",
    threads: Threads = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Predict classes with their probabilities, or numbers, for nodes of a graph or new ones."""
    from fastgcn.infer.new_nodes import predict_new
    from fastgcn.infer.predict import count_nodes, predict_parts, with_own_ids
    from fastgcn.infer.tables import check_top, prediction_columns
    from fastgcn.settings import whole_numbers

    endings = (".parquet", ".csv")
    opened = _opened(
        run_path, data, split, split_seed, device, out=(out, endings, json),
        alone=_alone(memory, device, threads, samples=samples, new=(new_nodes, new_edges)),
    )  # fmt: skip
    parts: Rows
    with opened as (run, graph, writes), held_to(threads):  # parts are computed as they are written
        if new_nodes is None and new_edges is None:
            chosen = _chosen(graph, nodes)
            sizes = None if samples is None else whole_numbers(samples, "--samples")
            count = count_nodes(graph, chosen)
            found = predict_parts(run, graph, chosen, samples=sizes, seed=seed, memory=memory)
            parts = with_own_ids(graph, found)
        else:
            if nodes is not None or samples is not None:
                raise InputError("the nodes are those of --new-nodes; leave --nodes, --samples out")
            find = partial(predict_new, default_weight=default_weight)
            count, parts = _of_new_nodes(run, graph, (new_nodes, new_edges), find)
        check_top(top, run.model)
        columns = (prediction_columns(ids, rows, run, top) for ids, rows in parts)
        _finish(columns, run_path, out, count, raw=raw, json=json, writes=writes)


def _of_new_nodes(
    run: "Run",
    graph: "Graph | Shard",
    tables: tuple[str | None, str | None],
    find: "Callable[..., FloatArray]",
) -> tuple[int, Rows]:
    """How many new nodes two tables have, and their ids and rows by `find`."""
    from fastgcn.infer.new_nodes import read_new_nodes
    from fastgcn.infer.predict import graph_of

    nodes, edges = tables
    if nodes is None or edges is None:
        raise InputError("--new-nodes and --new-edges go together")
    new = read_new_nodes(run, graph_of(graph), nodes, edges)
    ids = new["node_ids"]
    return len(ids), iter([(ids, find(run, graph_of(graph), **new))])


def embed(
    run_path: RunPath,
    data: Data = None,
    out: OutFile = Path(),
    nodes: Nodes = None,
    layer: Annotated[
        int,
        typer.Option(help="Layer 1..M; -1: the last hidden one, M: class scores, 0: X."),
    ] = -1,
    new_nodes: NewNodes = None,
    new_edges: NewEdges = None,
    default_weight: DefaultWeight = None,
    split: SplitName = None,
    split_seed: Seed = None,
    memory: Memory = "auto",
    device: Device = "auto",
    threads: Threads = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Write the hidden rows of nodes, also new ones: Parquet or CSV with ids, or a plain .npy."""
    from fastgcn.infer.new_nodes import embed_new
    from fastgcn.infer.predict import count_nodes, embed_parts, with_own_ids
    from fastgcn.infer.tables import embedding_columns, write_array

    opened = _opened(
        run_path, data, split, split_seed, device,
        alone=_alone(memory, device, threads, new=(new_nodes, new_edges)),
        out=(out, (".parquet", ".csv", ".npy"), json),
    )  # fmt: skip
    parts: Rows
    with opened as (run, graph, writes), held_to(threads):  # parts are computed as they are written
        with_ids = out.suffix != ".npy"  # JSON and - have ids
        if new_nodes is None and new_edges is None:
            chosen = _chosen(graph, nodes)
            count = count_nodes(graph, chosen)
            found = embed_parts(run, graph, chosen, layer=layer, memory=memory)
            parts = with_own_ids(graph, found, ids=with_ids)
        else:
            if nodes is not None:
                raise InputError("the nodes are those of --new-nodes; leave --nodes out")
            find = partial(embed_new, layer=layer, default_weight=default_weight)
            count, parts = _of_new_nodes(run, graph, (new_nodes, new_edges), find)
        if with_ids:
            columns = (embedding_columns(ids, rows) for ids, rows in parts)
            _finish(columns, run_path, out, count, raw=raw, json=json, writes=writes)
            return
        arrays = (rows for _, rows in parts)
        _write(arrays, lambda: write_array(out, count, arrays), writes=writes)
    if writes:
        _done(run_path, out, count, json)


def _finish(
    columns: Iterator[dict[str, Any]],
    run_path: Path,
    out: Path,
    count: int,
    *,
    raw: bool,
    json: bool,
    writes: bool,
) -> None:
    """Write the parts of a table to a file, or to standard output as CSV or JSON."""
    from fastgcn.infer.tables import STDOUT, rows_as_json

    def write() -> None:
        if out == Path():
            rows = rows_as_json(columns)
            emit_json({"run": str(run_path), "nodes": count, "rows": rows})
        else:
            _write_table(out, columns, raw)

    _write(columns, write, writes=writes)
    if writes and out not in (Path(), STDOUT):
        _done(run_path, out, count, json)


def _write(parts: Iterator[Any], write: Callable[[], None], *, writes: bool) -> None:
    """Write parts of a result; other processes compute theirs and send them."""
    if writes:
        write()
    else:
        deque(parts, maxlen=0)


def _write_table(out: Path, columns: Iterator[dict[str, Any]], raw: bool) -> None:
    """Write a table; say which texts are not as they were."""
    from fastgcn.infer.tables import STDOUT, write_table

    guarded = write_table(out, columns, raw=raw)
    if guarded:
        where = "the output" if out == STDOUT else out
        say(
            f"Note: in {where}, {guarded:,} texts that begin with = + - @ have an apostrophe in "
            "front, so that no spreadsheet calculates them; --raw writes them as they are."
        )


def _chosen(graph: "Graph | Shard", nodes: str | None) -> "IntArray":
    """The nodes that `--nodes` names; if there are several processes, those of this shard."""
    from fastgcn.graph.graph import Graph, parse_nodes

    if isinstance(graph, Graph):
        return parse_nodes(graph, nodes)
    return graph.group.on_all("nodes", lambda: graph.parse_nodes(nodes))


def _done(run_path: Path, out: Path, count: int, json: bool) -> None:
    if json:
        emit_json({"run": str(run_path), "out": str(out), "nodes": count})
    else:
        say(f"{count:,} nodes written to {out}")
