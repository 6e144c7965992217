"""`fastgcn bench`: measured figures, kept as JSON lines and shown as tables."""

from pathlib import Path
from typing import Annotated

import typer

from fastgcn.cli.data import Json
from fastgcn.cli.output import emit_json, say, show_table
from fastgcn.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Measure accuracy; results are kept as JSON lines.")


@app.callback()
def _bench() -> None:
    pass


@app.command("accuracy")
def accuracy(
    data: Annotated[
        list[str] | None, typer.Option(help="Only these data sets; repeatable.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only these cases; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0..N-1 of every setting.")] = 10,
    results: Annotated[Path, typer.Option(help="File of results; what it has is kept.")] = Path(
        "results/accuracy.jsonl"
    ),
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
