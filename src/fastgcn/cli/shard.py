"""`fastgcn shard`: a store as parts, for processes that have some of them each."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from fastgcn.cli.data import Force, Json, Seed, SplitName, load_graph
from fastgcn.cli.output import emit_json, say


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
    from fastgcn.data.shard import shard as write

    graph = load_graph(data, split, split_seed)
    folder = out or Path(f"{graph.name}-{parts}-parts")
    bounds = write(graph, parts, folder, by=by, force=force).tolist()
    sizes = [stop - first for first, stop in pairwise(bounds)]
    if json:
        emit_json({"out": str(folder), "parts": parts, "by": by, "nodes": sizes})
        return
    say(f"{parts} parts of {min(sizes):,} to {max(sizes):,} nodes written to {folder}")
    say(f"Next: torchrun --nproc-per-node {parts} -m fastgcn train {folder}")
