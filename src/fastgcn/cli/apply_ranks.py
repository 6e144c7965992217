"""`evaluate`, `predict` and `embed` under torchrun: each process computes its own nodes."""

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastgcn.cli.data import load_graph
from fastgcn.cli.output import say
from fastgcn.cli.ranks import joined, jointly, open_data
from fastgcn.cli.train import load_source
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.distributed.share import Share
    from fastgcn.distributed.world import World
    from fastgcn.graph import Graph
    from fastgcn.metrics import Metrics
    from fastgcn.runs import Run
    from fastgcn.types import FloatArray, IntArray

Rows = Iterator[tuple[list[Any], "FloatArray"]]


def score(
    run_path: Path, data: str | None, part: str, split: str | None, seed: int | None
) -> "tuple[Run, str, Metrics] | None":
    """The run, the graph's name and the scores; None where another process says them."""
    from fastgcn.distributed.judge import SharedJudge
    from fastgcn.inference import check_classes

    with joined() as world:
        assert world is not None
        run, share = _opened(world, run_path, data, split, seed)
        jointly(world, "the data", lambda: check_classes(run, share.graph))
        # Of the whole graph, as `evaluate` does it in one process.
        config = run.config.replace(evaluation_graph="all")
        judge = SharedJudge(share, config, getattr(share.split, part))
        jointly(world, "nodes", lambda: _need(len(judge), part, share))
        metrics = judge(run.model)
        return (run, share.graph.name, metrics) if world.first else None


def write_predictions(
    run_path: Path,
    data: str | None,
    out: Path,
    nodes: str | None,
    split: str | None,
    seed: int | None,
) -> int | None:
    """How many nodes were written, in the graph's order; None where another process has."""
    from fastgcn.distributed.judge import predict_shared
    from fastgcn.output_tables import prediction_columns, write_table

    def apply(run: "Run", share: "Share", own: "IntArray") -> "FloatArray":
        return predict_shared(run.model, share, own)

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
    from fastgcn.distributed.judge import depth_of, embed_shared
    from fastgcn.output_tables import embedding_columns, write_array, write_table

    def apply(run: "Run", share: "Share", own: "IntArray") -> "FloatArray":
        jointly(share.world, "--layer", lambda: depth_of(run.model, layer))
        return embed_shared(run.model, share, own, layer)

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
    apply: "Callable[[Run, Share, IntArray], FloatArray]",
    write: "Callable[[Run, Rows, int], None]",
) -> int | None:
    """Rows of the nodes that were asked for, each computed where its node is, and written by the
    first process."""
    from fastgcn.distributed.judge import gathered

    with joined() as world:
        assert world is not None
        jointly(world, "--out", lambda: check() if world.first else None)
        run, share = _opened(world, *source)
        own = jointly(world, "nodes", lambda: share.nodes(nodes))
        count = sum(world.host.counts(len(own), "numbers of nodes"))
        jointly(world, "nodes", lambda: _need(count, nodes, share))
        rows = gathered(share, own, apply(run, share, own))
        if world.first:
            write(run, rows, count)
            return count
        for _ in rows:
            pass
        return None


def _need(count: int, part: str | None, share: "Share") -> None:
    if count == 0:
        raise InputError(f"the {part} part of {share.graph.name}'s split is empty")


def _opened(
    world: "World", run_path: Path, data: str | None, split: str | None, seed: int | None
) -> "tuple[Run, Share]":
    """The run and this process's share of a graph, which must be the same to all processes."""
    from fastgcn.data.layout import fingerprint
    from fastgcn.distributed.share import Share
    from fastgcn.runs import Run

    run = jointly(world, "the run", lambda: Run.load(run_path))
    world.agree("run", _digest(run))
    source: Any = None if run.source is None else dict(run.source)
    if data is None:
        where = str((source or {}).get("data", ""))
        graph, share = open_data(world, where, lambda: load_source(source, run_path))
    else:
        resplit = split is not None or seed is not None
        graph, share = open_data(
            world, data, lambda: load_graph(data, split, seed), resplit=resplit
        )
    if share is None:  # of one process, which has all
        share = jointly(world, "the data", lambda: Share.of_graph(graph, world))
    world.agree("data", fingerprint(graph))
    jointly(world, "the data", lambda: _check_fit(run, graph))
    if world.first and fingerprint(graph) != run.fingerprint:
        say(f"Note: {graph.name} is not the graph (or the split) that the run was trained on.")
    return run, share


def _check_fit(run: "Run", graph: "Graph") -> None:
    from fastgcn.inference import check_features, check_width

    check_width(run.model, graph.n_features, f"{graph.name} has")
    check_features(run, graph)


def _digest(run: "Run") -> str:
    """A name for the weights of a run."""
    found = sha256()
    for name, tensor in sorted(run.model.state_dict().items()):
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()
