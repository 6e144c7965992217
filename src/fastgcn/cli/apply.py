"""`evaluate`, `predict` and `embed` under torchrun: each process computes its own nodes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import sha256
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
    load_source,
    open_data,
)
from fastgcn.cli.output import emit_json, say, show_classes, show_table
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.arrays import FloatArray, IntArray
    from fastgcn.backends.ranks.process_group import ProcessGroup
    from fastgcn.backends.ranks.shard import Shard
    from fastgcn.graph.graph import Graph
    from fastgcn.metrics import Metrics
    from fastgcn.train.run import Run

Rows = Iterator[tuple[list[Any], "FloatArray"]]


def score(
    run_path: Path, data: str | None, part: str, split: str | None, seed: int | None
) -> "tuple[Run, str, Metrics] | None":
    """The run, the graph's name and the scores; None where another process says them."""
    from fastgcn.backends.ranks.forward import ShardEvaluator
    from fastgcn.infer.predict import check_classes

    with joined() as group:
        assert group is not None
        run, shard = _opened(group, run_path, data, split, seed)
        jointly(group, "the data", lambda: check_classes(run, shard.graph))
        # Of the whole graph, as `evaluate` does it in one process.
        config = run.config.replace(evaluation_graph="all")
        judge = ShardEvaluator(shard, config, getattr(shard.split, part))
        jointly(group, "nodes", lambda: _need(len(judge), part, shard))
        metrics = judge(run.model)
        return (run, shard.graph.name, metrics) if group.is_main else None


def write_predictions(
    run_path: Path,
    data: str | None,
    out: Path,
    nodes: str | None,
    split: str | None,
    seed: int | None,
) -> int | None:
    """How many nodes were written, in the graph's order; None where another process has."""
    from fastgcn.backends.ranks.forward import predict_shared
    from fastgcn.infer.tables import prediction_columns, write_table

    def apply(run: "Run", shard: "Shard", own: "IntArray") -> "FloatArray":
        return predict_shared(run.model, shard, own)

    def write(run: "Run", rows: Rows, _: int) -> None:
        write_table(out, (prediction_columns(ids, some, run) for ids, some in rows))

    checked = partial(_check_out, out, (".parquet", ".csv"))
    return _write_rows((run_path, data, split, seed), nodes, checked, apply, write)


def write_embeddings(
    run_path: Path,
    data: str | None,
    out: Path,
    nodes: str | None,
    layer: int,
    split: str | None,
    seed: int | None,
) -> int | None:
    """How many nodes were written, in the graph's order; None where another process has."""
    from fastgcn.backends.ranks.forward import depth_of, embed_shared
    from fastgcn.infer.tables import embedding_columns, write_array, write_table

    def apply(run: "Run", shard: "Shard", own: "IntArray") -> "FloatArray":
        jointly(shard.group, "--layer", lambda: depth_of(run.model, layer))
        return embed_shared(run.model, shard, own, layer)

    def write(_: "Run", rows: Rows, count: int) -> None:
        if out.suffix == ".npy":
            write_array(out, count, (some for _, some in rows))
        else:
            write_table(out, (embedding_columns(ids, some) for ids, some in rows))

    checked = partial(_check_out, out, (".parquet", ".csv", ".npy"))
    return _write_rows((run_path, data, split, seed), nodes, checked, apply, write)


def _check_out(out: Path, endings: tuple[str, ...]) -> None:
    """Refuse a file that cannot be written, before anything is computed for it."""
    if out.suffix not in endings:
        *others, last = endings
        raise InputError(f"--out must end in {', '.join(others)} or {last}, got {out.name!r}")
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent} to write {out.name} into")


def _write_rows(
    source: tuple[Path, str | None, str | None, int | None],
    nodes: str | None,
    check: Callable[[], None],
    apply: "Callable[[Run, Shard, IntArray], FloatArray]",
    write: "Callable[[Run, Rows, int], None]",
) -> int | None:
    """Rows of the nodes that were asked for, each computed where its node is, and written by the
    first process."""
    from fastgcn.backends.ranks.forward import gathered

    with joined() as group:
        assert group is not None
        jointly(group, "--out", lambda: check() if group.is_main else None)
        run, shard = _opened(group, *source)
        own = jointly(group, "nodes", lambda: shard.nodes(nodes))
        count = sum(group.host_comm.gather_counts(len(own), "numbers of nodes"))
        jointly(group, "nodes", lambda: _need(count, nodes, shard))
        rows = gathered(shard, own, apply(run, shard, own))
        if group.is_main:
            write(run, rows, count)
            return count
        for _ in rows:
            pass
        return None


def _need(count: int, part: str | None, shard: "Shard") -> None:
    if count == 0:
        raise InputError(f"the {part} part of {shard.graph.name}'s split is empty")


def _opened(
    group: "ProcessGroup", run_path: Path, data: str | None, split: str | None, seed: int | None
) -> "tuple[Run, Shard]":
    """The run and this process's shard of a graph, which must be the same to all processes."""
    from fastgcn.backends.ranks.shard import Shard
    from fastgcn.data.layout import fingerprint
    from fastgcn.train.run import Run

    run = jointly(group, "the run", lambda: Run.load(run_path))
    group.check_equal("run", _digest(run))
    source: Any = None if run.source is None else dict(run.source)
    if data is None:
        where = str((source or {}).get("data", ""))
        graph, shard = open_data(group, where, lambda: load_source(source, run_path))
    else:
        resplit = split is not None or seed is not None
        graph, shard = open_data(
            group, data, lambda: load_graph(data, split, seed), resplit=resplit
        )
    if shard is None:  # of one process, which has all
        shard = jointly(group, "the data", lambda: Shard.of_graph(graph, group))
    group.check_equal("data", fingerprint(graph))
    jointly(group, "the data", lambda: _check_fit(run, graph))
    if group.is_main and fingerprint(graph) != run.fingerprint:
        say(f"Note: {graph.name} is not the graph (or the split) that the run was trained on.")
    return run, shard


def _check_fit(run: "Run", graph: "Graph") -> None:
    from fastgcn.backends.exact import check_width
    from fastgcn.infer.predict import check_features

    check_width(run.model, graph.n_features, f"{graph.name} has")
    check_features(run, graph)


def _digest(run: "Run") -> str:
    """A name for the weights of a run."""
    found = sha256()
    for name, tensor in sorted(run.model.state_dict().items()):
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
Data = Annotated[
    str | None, typer.Argument(help="The graph to use; the run's own where not given.")
]
Nodes = Annotated[
    str | None,
    typer.Option(
        help="Which nodes: all (the default), train, val, test, own ids with commas, or @FILE "
        "with one id a line."
    ),
]
Memory = Annotated[
    str, typer.Option(help="What the process may take, such as 4GB; the rest is on disk.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; all by default.")]
OutFile = Annotated[
    Path,
    typer.Option("--out", show_default=False, help="File to write; its ending is its format."),
]


def open_run(
    run_path: Path, data: str | None, split: str | None, seed: int | None, device: str = "cpu"
) -> "tuple[Run, Graph]":
    from fastgcn.data.layout import fingerprint
    from fastgcn.machine import choose_device
    from fastgcn.train.run import Run

    run = Run.load(run_path)
    run.model.to(choose_device(device))
    if data is None:
        graph = load_source(None if run.source is None else dict(run.source), run_path)
    else:
        graph = load_graph(data, split, seed)
        if fingerprint(graph) != run.fingerprint:
            say(f"Note: {graph.name} is not the graph (or the split) that the run was trained on.")
    return run, graph


def held_to(threads: int | None) -> AbstractContextManager[None]:
    """Run on so many threads, where a number was given."""
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
    from fastgcn.backends.ranks import launched

    if part not in ("train", "val", "test"):
        raise InputError(f"--part must be train, val or test, got {part!r}")
    if launched():
        _refuse_alone(memory, device, threads)
        found = score(run_path, data, part, split, split_seed)
        if found is None:
            return
        run, name, metrics = found
    else:
        from fastgcn.infer.predict import evaluate as score_alone

        run, graph = open_run(run_path, data, split, split_seed, device)
        with held_to(threads):
            name, metrics = graph.name, score_alone(run, graph, part, memory=memory)
    classes = {n: list(getattr(metrics, n)) for n in ("precision", "recall", "f1", "support")}
    if json:
        emit_json(
            {"run": str(run_path), "dataset": name, "part": part, "nodes": metrics.n_nodes}
            | metrics.scores()
            | {"classes": classes}
        )
        return
    show_table(
        f"{name}: {metrics.n_nodes:,} {part} nodes",
        ("", "score"),
        [(name, f"{value:.4f}") for name, value in metrics.scores().items()],
    )
    show_classes(part, classes, run.class_names)


def predict(
    run_path: RunPath,
    data: Data = None,
    out: OutFile = Path(),
    nodes: Nodes = None,
    samples: Annotated[
        str | None, typer.Option(help="Sample so many vertices a layer instead of using all.")
    ] = None,
    new_nodes: Annotated[
        Path | None, typer.Option(help="Table of nodes that the graph does not have.")
    ] = None,
    new_edges: Annotated[
        Path | None, typer.Option(help="Table of the new nodes' edges, to old nodes or new.")
    ] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    seed: Annotated[int, typer.Option(help="Seed of sampled prediction.")] = 0,
    memory: Memory = "auto",
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Predict classes with their probabilities, for nodes of a graph or for new ones."""
    from fastgcn.backends.ranks import launched
    from fastgcn.infer.predict import predict_parts
    from fastgcn.infer.tables import prediction_columns, write_table
    from fastgcn.settings import whole_numbers

    _need_out(out)
    if launched():
        if any(option is not None for option in (samples, new_nodes, new_edges)):
            raise InputError(
                "--samples, --new-nodes and --new-edges are for a single process; run it without "
                "torchrun"
            )
        _refuse_alone(memory, device, threads)
        written = write_predictions(run_path, data, out, nodes, split, split_seed)
        if written is not None:
            _done(run_path, out, written, json)
        return
    run, graph = open_run(run_path, data, split, split_seed, device)
    if (new_nodes is None) != (new_edges is None):
        raise InputError("--new-nodes and --new-edges go together")
    if new_nodes is not None and new_edges is not None:
        from fastgcn.data.tables import read_new_nodes
        from fastgcn.infer.new_nodes import predict_new

        if nodes is not None or samples is not None:
            raise InputError("--new-nodes predicts the new nodes; leave --nodes and --samples out")
        new = read_new_nodes(new_nodes, new_edges, graph)
        count = len(new["node_ids"])
        with held_to(threads):
            parts: Any = [(new["node_ids"], predict_new(run, graph, **new))]
    else:
        chosen = _chosen(graph, nodes)
        count = len(chosen)
        sizes = None if samples is None else whole_numbers(samples, "--samples")
        found = predict_parts(run, graph, chosen, samples=sizes, seed=seed, memory=memory)
        parts = ((_own_ids(graph, some), rows) for some, rows in found)
    with held_to(threads):  # parts are computed as they are written
        write_table(out, (prediction_columns(ids, rows, run) for ids, rows in parts))
    _done(run_path, out, count, json)


def embed(
    run_path: RunPath,
    data: Data = None,
    out: OutFile = Path(),
    nodes: Nodes = None,
    layer: Annotated[
        int,
        typer.Option(help="Layer 1..M; -1: the last hidden one, M: class scores, 0: X."),
    ] = -1,
    split: SplitName = None,
    split_seed: Seed = None,
    memory: Memory = "auto",
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write the hidden rows of nodes: Parquet or CSV with ids, or a plain .npy."""
    from fastgcn.backends.ranks import launched
    from fastgcn.infer.predict import embed_parts
    from fastgcn.infer.tables import embedding_columns, write_array, write_table

    _need_out(out)
    if launched():
        _refuse_alone(memory, device, threads)
        written = write_embeddings(run_path, data, out, nodes, layer, split, split_seed)
        if written is not None:
            _done(run_path, out, written, json)
        return
    run, graph = open_run(run_path, data, split, split_seed, device)
    chosen = _chosen(graph, nodes)
    parts = embed_parts(run, graph, chosen, layer=layer, memory=memory)
    with held_to(threads):  # parts are computed as they are written
        if out.suffix == ".npy":
            write_array(out, len(chosen), (rows for _, rows in parts))
        else:
            columns = (embedding_columns(_own_ids(graph, some), rows) for some, rows in parts)
            write_table(out, columns)
    _done(run_path, out, len(chosen), json)


def _refuse_alone(memory: str, device: str, threads: int | None) -> None:
    """Options that several processes, which share the machine's memory and cores, do not have."""
    if memory != "auto" or device not in ("auto", "cpu") or threads is not None:
        raise InputError(
            "--memory, --device and --threads are for a single process; run it without torchrun"
        )


def _need_out(out: Path) -> None:
    if out == Path():
        raise InputError("--out FILE is needed: .parquet or .csv (embed also .npy)")


def _done(run_path: Path, out: Path, count: int, json: bool) -> None:
    if json:
        emit_json({"run": str(run_path), "out": str(out), "nodes": count})
    else:
        say(f"{count:,} nodes written to {out}")


def _chosen(graph: "Graph", nodes: str | None) -> Any:
    from fastgcn.graph.nodes import parse_nodes

    return parse_nodes(graph, nodes)


def _own_ids(graph: "Graph", chosen: Any) -> list[Any]:
    from fastgcn.graph.nodes import own_ids

    return own_ids(graph, chosen)
