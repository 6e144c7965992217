"""`fastgcn report`: runs as one HTML page; `fastgcn diagnose`: the errors of sampling."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgcn.cli.apply import Threads, held_to, open_run
from fastgcn.cli.data import Json, Seed, SplitName, load_graph
from fastgcn.cli.output import emit_json, say, show_table, show_text
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.config import TrainConfig
    from fastgcn.graph.graph import Graph
    from fastgcn.network import Network


Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN... [DATA]",
        help="Folder of a run; several are compared. Last, the graph to use instead of the runs' "
        "own.",
    ),
]


def report(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(
            help="HTML file to write; by default report.html, or comparison.html, in the first RUN."
        ),
    ] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write a self-contained HTML page on a run, or on several runs side by side."""
    from fastgcn.report import compare_report, run_report
    from fastgcn.writing import write_text

    folders, data = _runs_and_data(runs)
    opened = [open_run(folder, data, split, split_seed) for folder in folders]
    compares = len(folders) > 1
    place = out or folders[0] / ("comparison.html" if compares else "report.html")
    with held_to(threads):
        if compares:
            html = compare_report([run for run, _ in opened], [graph for _, graph in opened])
        else:
            html = run_report(*opened[0])
    write_text(place, html)
    if json:
        named = {"runs": list(map(str, folders))} if compares else {"run": str(folders[0])}
        emit_json(named | {"out": str(place), "bytes": len(html.encode())})
    else:
        say(f"{'Comparison' if compares else 'Report'} written to {place}")


def _runs_and_data(given: list[str]) -> tuple[list[Path], str | None]:
    """The folders of runs, and the data if the last argument is not a run."""
    *first, last = given
    if first and not (Path(last) / "config.json").is_file():
        return [Path(name) for name in first], last
    return [Path(name) for name in given], None


def diagnose(
    data: Annotated[str, typer.Argument(help="A data set's name, or a folder or file to load.")],
    run: Annotated[
        Path | None, typer.Option(help="Use the network and settings of this run.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Settings to start from, as in train; auto by default.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, KEY=VALUE; repeatable.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Sample size at which all members are compared.")
    ] = None,
    target: Annotated[
        list[float] | None,
        typer.Option(
            help="Relative error to find sample sizes for; repeatable; 0.1, 0.05 by default."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="HTML page to write, with plots.")] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure the error of sampled layers and gradients, and say how many samples are needed."""
    from fastgcn.diagnose.diagnosis import diagnose as measure
    from fastgcn.report.diagnosis import (
        SIZES_NOTE,
        as_data,
        diagnosis_page,
        member_table,
        size_tables,
    )
    from fastgcn.writing import write_text

    if out is not None and not out.parent.is_dir():
        # Checked before anything is measured.
        raise InputError(f"there is no folder {out.parent} to write {out.name} into")
    graph = load_graph(data, split, split_seed)
    config, model = _subject(graph, run, preset, settings)
    if samples is not None:
        config = config.replace(samples=samples)
    if threads is not None:
        config = config.replace(threads=threads)
    found = measure(graph, config, model=model, targets=target or (0.1, 0.05))
    if out is not None:
        write_text(out, diagnosis_page(found))
    if json:
        emit_json(as_data(found) | ({"out": str(out)} if out else {}))
        return
    members = member_table(found)
    show_table(members.caption, members.head, members.rows)
    show_text(SIZES_NOTE)
    for table in size_tables(found):
        show_table(table.caption, table.head, table.rows)
    for advice in found.advice:
        show_text(advice.sentence)
    if out is not None:
        say(f"Page written to {out}")


def _subject(
    graph: "Graph", run_path: Path | None, preset: str | None, settings: list[str] | None
) -> "tuple[TrainConfig, Network | None]":
    """Settings and network: those of a run, or of a preset and random weights."""
    from fastgcn.settings import read_assignments
    from fastgcn.train.presets import resolve

    if run_path is None:
        given = {} if preset is None else {"preset": preset}
        asked = read_assignments(settings or ()) | given
        return resolve(graph, None, asked, sampled=True), None
    if preset is not None or settings:
        raise InputError("with --run the settings are those of the run; leave --preset, --set out")
    from fastgcn.data.layout import fingerprint
    from fastgcn.train.run import Run

    run = Run.load(run_path)
    if fingerprint(graph) != run.fingerprint:
        say(f"Note: {graph.name} is not the graph (or the split) that the run was trained on.")
    return run.config, run.model
