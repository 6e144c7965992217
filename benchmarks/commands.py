"""`python -m benchmarks`: measure, and reproduce the paper's tables and figures.

Each command measures what its file of results lacks, or what is stale there, and then writes its
page from the results. What is measured is in the modules named like the commands.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import pages
from benchmarks.results import STALE, Results
from fastgcn.cli.data import Json
from fastgcn.cli.output import emit_json, say, show_table
from fastgcn.errors import InputError
from fastgcn.progress import plain_lines
from fastgcn.report.page import Table

app = typer.Typer(
    name="python -m benchmarks",
    no_args_is_help=True,
    help="Measure; results are kept as JSON lines, and pages are written from them.",
    pretty_exceptions_enable=False,
    add_completion=False,
)

Names = Annotated[
    list[str] | None, typer.Argument(help="Only these experiments; all of them without names.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Less of it, in minutes; files go to results/quick.")
]
Show = Annotated[
    bool, typer.Option("--show", help="Measure nothing; write the page from what is on file.")
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Seeds 0..N-1 of every training.")]
ResultsFolder = Annotated[
    Path | None, typer.Option("--results", help="Folder of result files.  [default: results]")
]
DocsFolder = Annotated[
    Path | None, typer.Option("--docs", help="Folder of the page.  [default: docs]")
]
Data = Annotated[list[str] | None, typer.Option(help="Only these data sets; repeatable.")]
Scratch = Annotated[Path, typer.Argument(help="Folder for graphs and runs.")]

# Quick figures must not take the place of the measured ones that a page shows.
_QUICK = Path("results/quick")


@app.callback()
def _root() -> None:
    plain_lines()


def _run(
    experiments: Sequence[pages.Experiment],
    names: Sequence[str] | None,
    results: Results,
    write: Callable[[], list[Path]] | None,
    *,
    show: bool,
    json: bool,
) -> None:
    """Measure the named experiments, write the page of all, and print tables of the named ones."""
    chosen = pages.chosen(names, experiments)
    measured = 0
    if not show:
        try:
            measured = pages.measure(chosen, results)
        except KeyboardInterrupt:
            say("Stopped. Finished results are on file; the same command goes on from there.")
            raise
    files = write() if write else []
    shown = pages.sections(chosen, results)
    if json:
        emit_json(
            {
                "experiments": [each.name for each in chosen],
                "measured": measured,
                "results": str(results.path),
                "files": [str(file) for file in files],
                "sections": pages.as_json(shown),
            }
        )
        return
    for section in shown:
        for part in section.content:
            if isinstance(part, Table):
                show_table(part.caption, part.head, part.rows)
            elif isinstance(part, str) and part.startswith(STALE):
                say(f"{section.title}: {part}")
    page = f"; page: {files[-1]}" if files else ""
    say(f"Measured {measured}; results: {results.path}{page}")


def _on_page(
    experiments: Sequence[pages.Experiment],
    names: Sequence[str] | None,
    results: Results,
    page: Path,
    *,
    show: bool,
    json: bool,
) -> None:
    pages.check_marks(page, experiments)  # now, and not after everything was measured
    write = lambda: pages.fill_page(page, experiments, results)  # noqa: E731
    _run(experiments, names, results, write, show=show, json=json)


def _folders(quick: bool, results: Path | None, docs: Path | None) -> tuple[Path, Path]:
    """Where results and pages go."""
    return (
        results or (_QUICK if quick else Path("results")),
        docs or (_QUICK if quick else Path("docs")),
    )


@app.command()
def accuracy(
    names: Names = None,
    seeds: Seeds = None,
    show: Show = False,
    results: ResultsFolder = None,
    docs: DocsFolder = None,
    json: Json = False,
) -> None:
    """Train with the paper's settings and with the best found; validation chooses."""
    from benchmarks.accuracy import SEEDS, experiments

    folder, page = _folders(False, results, docs)
    kept, page = Results(folder / "accuracy.jsonl"), page / "benchmarks.md"
    _on_page(experiments(seeds or SEEDS), names, kept, page, show=show, json=json)


@app.command()
def estimators(
    names: Names = None,
    data: Data = None,
    seeds: Seeds = None,
    quick: Quick = False,
    show: Show = False,
    results: ResultsFolder = None,
    docs: DocsFolder = None,
    json: Json = False,
) -> None:
    """Compare all estimators: error of the gradient, time of a step, both at once, accuracy."""
    from dataclasses import replace

    from benchmarks.estimators import DATA, FULL, QUICK, experiments

    effort = QUICK if quick else FULL
    effort = effort if seeds is None else replace(effort, seeds=seeds)
    folder, page = _folders(quick, results, docs)
    kept = Results(folder / "estimators.jsonl", also=[folder / "accuracy.jsonl"])
    all_of = experiments(effort, data or DATA)
    _on_page(all_of, names, kept, page / "estimators.md", show=show, json=json)


@app.command()
def speed(
    names: Names = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quick: Quick = False,
    show: Show = False,
    results: ResultsFolder = None,
    docs: DocsFolder = None,
    json: Json = False,
) -> None:
    """Time what a user waits for, against floors and other programs measured in the same run."""
    from benchmarks import speed as cpu

    effort = cpu.QUICK if quick else cpu.FULL
    folder, page = _folders(quick, results, docs)
    if device == "cuda":
        from benchmarks.timing import check_cuda

        if not show:
            check_cuda()
        from benchmarks import speed_gpu as gpu

        kept, page = Results(folder / "speed-cuda.jsonl"), page / "gpu.md"
        _on_page(gpu.experiments(effort), names, kept, page, show=show, json=json)
    elif device == "cpu":
        kept, page = Results(folder / "speed.jsonl"), page / "speed.md"
        _on_page(cpu.experiments(effort), names, kept, page, show=show, json=json)
    else:
        raise InputError(f"device must be cpu or cuda, got {device!r}")


@app.command()
def reproduce(
    names: Names = None,
    quick: Quick = False,
    seeds: Seeds = None,
    reddit: Annotated[
        str | None,
        typer.Option(help="A name or path of Reddit; without it, the stand-in reddit-sim."),
    ] = None,
    show: Show = False,
    results: ResultsFolder = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the page, the figures (.svg) and the tables (.md).")
    ] = Path("reproduction"),
    readme: Annotated[
        Path | None, typer.Option(help="A page whose table of all systems is replaced too.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure the paper's tables and figures here, and show them beside the paper's numbers."""
    from dataclasses import replace

    from benchmarks import paper, paper_scale

    scale = paper_scale.quick() if quick else paper_scale.full()
    if seeds is not None:
        scale = paper_scale.with_seeds(scale, seeds)
    if reddit is not None:
        scale = replace(scale, large=replace(scale.large, name=reddit))
    folder, _ = _folders(quick, results, None)
    kept = Results(folder / "reproduce.jsonl", also=[folder / "accuracy.jsonl"])
    all_of = paper.experiments(scale)
    chosen = pages.chosen(names, all_of)

    def write() -> list[Path]:
        subtitle = (
            "The experiments of Chen, Ma and Xiao (ICLR 2018), measured again beside the paper's "
            f"figures; {scale.about} {pages.DASH} is a figure that the paper does not have, or "
            "that is not measured yet."
        )
        files = [] if readme is None else pages.fill_page(readme, [paper.summary(scale)], kept)
        title = "FastGCN, reproduced"
        report = pages.write_report(out, chosen, kept, title=title, subtitle=subtitle)
        return [*files, *report[::-1]]

    _run(all_of, names, kept, write, show=show, json=json)


@app.command("import")
def import_(
    edges: Annotated[int, typer.Option(help="Edges of the table.")] = 20_000_000,
    nodes: Annotated[int, typer.Option(help="Nodes of the table.")] = 1_000_000,
    ids: Annotated[str, typer.Option(help="counting, shuffled, sparse or text.")] = "counting",
    memory: Annotated[str, typer.Option(help="What the import may use.")] = "1GB",
    show: Show = False,
    results: ResultsFolder = None,
    docs: DocsFolder = None,
    json: Json = False,
) -> None:
    """Import tables of random edges, against scipy in memory."""
    from benchmarks.data_costs import Tables, import_experiment

    folder, page = _folders(False, results, docs)
    tables = Tables(edges=edges, nodes=nodes, ids=ids, memory=memory)
    kept, all_of = Results(folder / "import.jsonl"), [import_experiment(tables)]
    _on_page(all_of, None, kept, page / "benchmarks.md", show=show, json=json)


@app.command()
def generate(
    scratch: Scratch = Path("/tmp"),
    show: Show = False,
    results: ResultsFolder = None,
    docs: DocsFolder = None,
    json: Json = False,
) -> None:
    """Generate a graph of Reddit's size, and open a store of 5 GB (needs 6 GB free)."""
    from benchmarks.data_costs import generate_experiment

    folder, page = _folders(False, results, docs)
    kept, all_of = Results(folder / "generate.jsonl"), [generate_experiment(scratch)]
    _on_page(all_of, None, kept, page / "benchmarks.md", show=show, json=json)


@app.command()
def out_of_core(
    scratch: Scratch,
    names: Names = None,
    limit: Annotated[str, typer.Option(help="What a process may allocate.")] = "4GB",
    show: Show = False,
    results: ResultsFolder = None,
    json: Json = False,
) -> None:
    """Train on features larger than the memory that a process may take (needs 40 GB free)."""
    from benchmarks.out_of_core import experiments

    kept = Results(_folders(False, results, None)[0] / "scale.jsonl")
    _run(experiments(scratch, limit), names, kept, None, show=show, json=json)


@app.command()
def distributed(
    names: Names = None,
    data: Annotated[str, typer.Option(help="A data set.")] = "reddit-sim",
    steps: Annotated[int, typer.Option(help="Steps of a round.")] = 15,
    rounds: Annotated[int, typer.Option(help="Rounds of one rank and of two.")] = 3,
    show: Show = False,
    results: ResultsFolder = None,
    json: Json = False,
) -> None:
    """Train over several processes: throughput, bytes on the wire, memory of each."""
    from benchmarks.distributed import experiments

    kept = Results(_folders(False, results, None)[0] / "scale.jsonl")
    _run(experiments(data, steps, rounds), names, kept, None, show=show, json=json)


@app.command()
def structure(
    trace: Annotated[
        bool, typer.Option(help="Also train on Cora for a few epochs, and trace what runs.")
    ] = True,
    names: Annotated[
        bool, typer.Option("--names", help="Also list the files that run in training.")
    ] = False,
    json: Json = False,
) -> None:
    """Count files, lines and imports, and the files that a training runs through."""
    from benchmarks.structure import as_rows, measure

    found = measure(trace=trace)
    if json:
        emit_json(found)
        return
    show_table("Structure", ("", "now", "at most", "met"), as_rows(found["figures"]))
    for title, details in found["details"].items():
        if details and (names or not title.endswith("files")):
            say(f"{title}:\n  " + "\n  ".join(details))


@app.command(
    "before-after",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def before_after(context: typer.Context) -> None:
    """Measure two source trees in turns; --help tells more."""
    import subprocess
    import sys

    script = Path(__file__).with_name("before_after.py")
    raise typer.Exit(subprocess.run([sys.executable, script, *context.args]).returncode)
