"""Commands that use a trained run: evaluate, predict, embed."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgcn.cli.data import Json, Seed, SplitName, load_graph
from fastgcn.cli.output import emit_json, say, show_table
from fastgcn.cli.train import load_source, show_classes
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.graph import Graph
    from fastgcn.runs import Run

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
    from fastgcn.runs import Run

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
    from fastgcn.distributed.launch import launched

    if part not in ("train", "val", "test"):
        raise InputError(f"--part must be train, val or test, got {part!r}")
    if launched():
        from fastgcn.cli.apply_ranks import score as score_together

        _refuse_alone(memory, device, threads)
        found = score_together(run_path, data, part, split, split_seed)
        if found is None:
            return
        run, name, metrics = found
    else:
        from fastgcn.inference import evaluate as score

        run, graph = open_run(run_path, data, split, split_seed, device)
        with held_to(threads):
            name, metrics = graph.name, score(run, graph, part, memory=memory)
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
    from fastgcn.distributed.launch import launched
    from fastgcn.inference import predict_parts
    from fastgcn.output_tables import prediction_columns, write_table
    from fastgcn.settings import whole_numbers

    _need_out(out)
    if launched():
        from fastgcn.cli.apply_ranks import write_predictions

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
        from fastgcn.data.new_tables import read_new_nodes
        from fastgcn.new_nodes import predict_new

        if nodes is not None or samples is not None:
            raise InputError("--new-nodes predicts the new nodes; leave --nodes and --samples out")
        new = read_new_nodes(new_nodes, new_edges, graph)
        count = len(new["node_ids"])
        with held_to(threads):
            parts: Any = [(new["node_ids"], predict_new(run, graph, **new))]
    else:
        chosen = _chosen(graph, nodes)
        count = len(chosen)
        sizes = whole_numbers(samples, "--samples")
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
    from fastgcn.distributed.launch import launched
    from fastgcn.inference import embed_parts
    from fastgcn.output_tables import embedding_columns, write_array, write_table

    _need_out(out)
    if launched():
        from fastgcn.cli.apply_ranks import write_embeddings

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
    from fastgcn.node_sets import parse_nodes

    return parse_nodes(graph, nodes)


def _own_ids(graph: "Graph", chosen: Any) -> list[Any]:
    from fastgcn.node_sets import own_ids

    return own_ids(graph, chosen)
