"""`fastgcn bench`: measured figures, kept as JSON lines and shown as tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.reproduce_command import reproduce
from fastgcn.cli.data import Json
from fastgcn.cli.output import emit_json, say, show_table
from fastgcn.errors import InputError, nearest

app = typer.Typer(no_args_is_help=True, help="Measure; results are kept as JSON lines.")
app.command("reproduce")(reproduce)

Seeds = Annotated[int, typer.Option(min=1, help="Seeds 0..N-1 of every setting.")]
ResultsFile = Annotated[Path, typer.Option(help="File of results; what it has is kept.")]

# Rough figures must not take the place of the measured ones that a page shows.
_QUICK = Path("results/quick"), Path("results/quick")


@app.command("accuracy")
def accuracy(
    preset: Annotated[
        str,
        typer.Option(help="paper: its settings, at its three rates; best: the best found here."),
    ] = "paper",
    data: Annotated[
        list[str] | None, typer.Option(help="Only these data sets; repeatable.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only these cases; repeatable.")] = None,
    seeds: Seeds = 10,
    results: ResultsFile = Path("results/accuracy.jsonl"),
    json: Json = False,
) -> None:
    """Train a preset's settings over seeds; validation chooses, test is reported."""
    from benchmarks.accuracy import CASES, DATA, run_case, table
    from benchmarks.results import Results
    from fastgcn.progress import progress

    if preset not in CASES:
        raise InputError(
            f"preset must be one of {', '.join(CASES)}, got {preset!r}{nearest(preset, CASES)}"
        )
    for name in data or ():
        if name not in DATA[preset]:
            raise InputError(f"data must be one of {', '.join(DATA[preset])}, got {name!r}")
    known = CASES[preset](data or ())
    cases = [c for c in known if not case or c.name in case]
    if not cases:
        names = sorted({f"{c.data}/{c.name}" for c in known})
        raise InputError(f"no such case; there are {', '.join(names)}")
    kept = Results(results)
    runs = sum(len(c.rates) * c.seeds(seeds) for c in cases)
    with progress("Training", runs, "runs") as advance:
        summaries = [run_case(c, seeds, kept, advance) for c in cases]
    if json:
        emit_json({"accuracy": summaries, "results": str(results)})
    else:
        show_table(f"Accuracy, mean ± sd over {seeds} seeds", *table(summaries))
        say(f"Results: {results}")


@app.command("estimators")
def estimators(
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these data sets (cora, pubmed and reddit-sim otherwise), or others, which "
            "are split at random; repeatable."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds 0..N-1 of every training; 3 by default.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Rough figures from few draws and short trainings.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            help="File of results; what it has is kept. results/estimators.jsonl, or "
            "results/quick/estimators.jsonl."
        ),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Page whose tables are replaced; figures go beside it. docs/estimators.md, or "
            "results/quick/estimators.md."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare all estimators: error of the gradient, time of a step, both at once, accuracy."""
    from dataclasses import replace

    from benchmarks import estimators_page as page
    from benchmarks import family
    from benchmarks.estimators import Costs, accuracies
    from benchmarks.results import Results

    effort = family.quick() if quick else family.full()
    if seeds is not None:
        effort = replace(effort, seeds=seeds)
    places = _QUICK if quick else (Path("results"), Path("docs"))
    results = results or places[0] / "estimators.jsonl"
    docs = docs or places[1] / "estimators.md"
    page.check_marks(docs)
    docs.parent.mkdir(parents=True, exist_ok=True)  # now, and not after everything was measured
    subjects = [family.subject(name) for name in data or family.DATA]
    kept = Results(results, also=[results.with_name("accuracy.jsonl")])
    costs = [Costs(each, effort, kept).summary() for each in subjects if each.costs]
    scores = accuracies([each for each in subjects if each.accuracy], effort, kept)
    files = page.write_page(docs, effort, costs, scores)
    if json:
        emit_json(
            {
                "costs": costs,
                "accuracy": scores,
                "findings": [page.finding(each) for each in costs],
                "results": str(results),
                "files": [str(file) for file in files],
            }
        )
        return
    for table in [*map(page.cost_table, costs), *([page.accuracy_table(scores)] if scores else [])]:
        show_table(table.caption, table.head, table.rows)
    for each in costs:
        say(page.finding(each))
    say(f"Results: {results}; page: {docs}")


@app.command("speed")
def speed(
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these figures: step, graphsage, trainings, scaling, propagation, inference, "
            "memory, startup; on a CUDA device step, hub, epoch, training, products, large, "
            "accuracy; repeatable."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="Small stand-ins: that it runs, not how fast.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            help="File of results; results/speed.jsonl, or results/speed-cuda.jsonl; in "
            "results/quick with --quick."
        ),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Page whose tables are replaced; docs/speed.md, or docs/gpu.md; in results/quick "
            "with --quick."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Time what a user waits for, against floors and other programs measured in the same run."""
    from benchmarks.results import Results
    from benchmarks.speed import effort as efforts
    from benchmarks.speed import figures, page

    effort = efforts.quick() if quick else efforts.full()
    known: Sequence[figures.Figure] = figures.FIGURES
    names = "speed.jsonl", "speed.md"
    if device == "cuda":
        from benchmarks.speed.device.timing import cuda

        cuda()  # before what cannot be imported without Triton
        from benchmarks.speed.device.figures import DEVICE_FIGURES

        known, names = DEVICE_FIGURES, ("speed-cuda.jsonl", "gpu.md")
    elif device != "cpu":
        raise InputError(f"device must be cpu or cuda, got {device!r}")
    places = _QUICK if quick else (Path("results"), Path("docs"))
    results, docs = results or places[0] / names[0], docs or places[1] / names[1]
    asked = figures.chosen(only, known)
    page.check_marks(docs, known)
    docs.parent.mkdir(parents=True, exist_ok=True)  # now, and not after everything was measured
    kept = Results(results)
    figures.measure(asked, effort, kept)
    files = page.write_page(docs, effort, kept, known)
    found = page.shown(effort, kept, known)
    if json:
        emit_json(
            {
                "claims": page.as_json(found),
                "records": {each.name: figures.on_file(each, effort, kept) for each in asked},
                "results": str(results),
                "files": [str(file) for file in files],
            }
        )
        return
    for table in page.tables_shown(found, [each.name for each in asked]):
        show_table(table.caption, table.head, table.rows)
    say(f"Results: {results}; page: {docs}")


@app.command("structure")
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
