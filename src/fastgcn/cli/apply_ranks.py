"""`evaluate` and `predict` under torchrun: each process applies the network to its own nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastgcn.cli.data import load_graph
from fastgcn.cli.ranks import joined, jointly, open_data
from fastgcn.cli.train import load_source

if TYPE_CHECKING:
    from fastgcn.distributed.share import Share
    from fastgcn.distributed.world import World
    from fastgcn.metrics import Metrics
    from fastgcn.runs import Run


def score(
    run_path: Path, data: str | None, part: str, split: str | None, seed: int | None
) -> "tuple[Run, str, Metrics] | None":
    """The run, the graph's name and the scores; None where another process says them."""
    from fastgcn.distributed.judge import SharedJudge
    from fastgcn.errors import InputError

    with joined() as world:
        assert world is not None
        run, share = _opened(world, run_path, data, split, seed)
        # Of the whole graph, as `evaluate` does it in one process.
        config = run.config.replace(evaluation_graph="all")
        judge = SharedJudge(share, config, getattr(share.split, part))
        if not len(judge):
            raise InputError(f"the {part} part of {share.graph.name}'s split is empty")
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
    """How many nodes were written, in ascending order; None where another process has."""
    from fastgcn.distributed.judge import predicted_parts
    from fastgcn.node_sets import own_ids
    from fastgcn.output_tables import prediction_columns, write_table

    with joined() as world:
        assert world is not None
        run, share = _opened(world, run_path, data, split, seed)
        own = jointly(world, "nodes", lambda: share.nodes(nodes))
        count = sum(world.host.counts(len(own), "numbers of nodes"))
        parts = predicted_parts(run.model, share, own)
        if not world.first:
            for _ in parts:
                pass
            return None
        named = ((own_ids(share.graph, ids), rows) for ids, rows in parts)
        write_table(out, (prediction_columns(ids, rows, run) for ids, rows in named))
        return count


def _opened(
    world: "World", run_path: Path, data: str | None, split: str | None, seed: int | None
) -> "tuple[Run, Share]":
    from fastgcn.runs import Run

    run = jointly(world, "the run", lambda: Run.load(run_path))
    source: Any = None if run.source is None else dict(run.source)
    if data is None:
        where = str((source or {}).get("data", ""))
        _, share = open_data(world, where, lambda: load_source(source, run_path))
    else:
        _, share = open_data(world, data, lambda: load_graph(data, split, seed))
    assert share is not None
    return run, share
