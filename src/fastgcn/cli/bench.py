"""`fastgcn bench`: measured figures, kept as JSON lines and shown as tables."""

from pathlib import Path
from typing import Annotated

import typer

from fastgcn.cli.data import Json
from fastgcn.cli.output import emit_json, say, show_table
from fastgcn.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Measure; results are kept as JSON lines.")

Seeds = Annotated[int, typer.Option(min=1, help="Seeds 0..N-1 of every setting.")]
ResultsFile = Annotated[Path, typer.Option(help="File of results; what it has is kept.")]


@app.command("accuracy")
def accuracy(
    data: Annotated[
        list[str] | None, typer.Option(help="Only these data sets; repeatable.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only these cases; repeatable.")] = None,
    seeds: Seeds = 10,
    results: ResultsFile = Path("results/accuracy.jsonl"),
    json: Json = False,
) -> None:
    """Train the paper's settings over seeds and rates; validation chooses, test is reported."""
    from fastgcn.bench.accuracy import paper_cases, run_case, table
    from fastgcn.bench.results import Results
    from fastgcn.progress import progress

    cases = [
        c for c in paper_cases() if (not data or c.data in data) and (not case or c.name in case)
    ]
    if not cases:
        names = sorted({f"{c.data}/{c.name}" for c in paper_cases()})
        raise InputError(f"no such case; there are {', '.join(names)}")
    kept = Results(results)
    runs = sum(len(c.rates) * seeds for c in cases)
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
    results: ResultsFile = Path("results/estimators.jsonl"),
    docs: Annotated[
        Path, typer.Option(help="Page whose tables are replaced; figures go beside it.")
    ] = Path("docs/estimators.md"),
    json: Json = False,
) -> None:
    """Compare all estimators: error of the gradient, time of a step, both at once, accuracy."""
    from dataclasses import replace

    from fastgcn.bench import estimators_page as page
    from fastgcn.bench import family
    from fastgcn.bench.estimators import Costs, accuracies
    from fastgcn.bench.results import Results

    effort = family.quick() if quick else family.full()
    if seeds is not None:
        effort = replace(effort, seeds=seeds)
    page.check_marks(docs)
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
