"""`python -m benchmarks`: measure, and reproduce the paper's tables and figures.

Each command measures what its file of results lacks, or what is stale there, and then writes its
page from the results. What is measured is in the modules named like the commands.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import pages
from benchmarks.results import STALE, Results, check_commit
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

Quick = Annotated[
    bool, typer.Option("--quick", help="Less of it, in minutes; files go to results/quick.")
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Seeds 0..N-1 of every training.")]
Data = Annotated[list[str] | None, typer.Option(help="Only these data sets; repeatable.")]
Jobs = Annotated[
    int,
    typer.Option(
        min=1, help="Processes at once, each on one core; what is timed comes after, alone."
    ),
]
Scratch = Annotated[Path, typer.Argument(help="Folder for graphs and runs.")]

# Quick figures must not take the place of the measured ones that a page shows.
_QUICK = Path("results/quick")


@app.callback()
def _root() -> None:
    plain_lines()


@dataclass(frozen=True, slots=True)
class Suite:
    """What a command measures, its file of results, and its page in docs, if it has one.

    Results in the files `also` count too. `measure` takes the place of `pages.measure`.
    """

    experiments: Sequence[pages.Experiment]
    results: str
    page: str | None = None
    folder: str = "docs"
    also: tuple[str, ...] = ()
    measure: Callable[[list[pages.Experiment], Results], int] = pages.measure


def _shared(
    names: Annotated[
        list[str] | None, typer.Argument(help="Only these experiments; all of them without names.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Measure nothing; write the page from what is on file.")
    ] = False,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of result files.  [default: results]")
    ] = None,
    docs: Annotated[
        Path | None, typer.Option("--docs", help="Folder of the page.  [default: docs]")
    ] = None,
    json: Json = False,
) -> None:
    """The options that every command with experiments has beside its own."""


def _on_the_cpu() -> None:
    """Hide GPUs: these figures are of the CPU, and settings that say nothing would take one."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _measures(name: str | None = None) -> Callable[[Callable[..., Suite]], None]:
    """Make a command of a function that says what is measured."""

    def register(choose: Callable[..., Suite]) -> None:
        own, shared = (inspect.signature(each).parameters for each in (choose, _shared))

        @wraps(choose)
        def command(**given: Any) -> None:
            suite = choose(**{option: given[option] for option in own})
            _run(suite, given.get("quick", False), **{option: given[option] for option in shared})

        # Typer reads the parameters of a command from its signature.
        both = inspect.Signature([*own.values(), *shared.values()])
        command.__signature__ = both  # type: ignore[attr-defined]
        app.command(name)(command)

    return register


def _run(
    suite: Suite,
    quick: bool,
    names: Sequence[str] | None,
    show: bool,
    results: Path | None,
    docs: Path | None,
    json: bool,
) -> None:
    """Measure the named experiments, write the page of all, and print tables of the named ones."""
    folder = results or (_QUICK if quick else Path("results"))
    kept = Results(folder / suite.results, also=[folder / each for each in suite.also])
    place = docs or (_QUICK if quick else Path(suite.folder))
    page = place / suite.page if suite.page else None
    chosen = pages.chosen(names, suite.experiments)
    if page is not None:
        pages.check_marks(page, suite.experiments)  # now, and not after everything was measured
    measured = 0
    if not show:
        check_commit(folder)
        try:
            measured = suite.measure(chosen, kept)
        except KeyboardInterrupt:
            say("Stopped. Finished results are on file; the same command goes on from there.")
            raise
    try:
        files = [] if page is None else pages.fill_page(page, suite.experiments, kept)
        shown = pages.sections(chosen, kept)
    except ModuleNotFoundError as missing:  # what draws, on a machine that only measures
        say(
            f"Measured {measured}; results: {kept.path}. No page is written, because "
            f"{missing.name} is not installed here: the same with --show writes it elsewhere."
        )
        return
    if json:
        emit_json(
            {
                "experiments": [each.name for each in chosen],
                "measured": measured,
                "results": str(kept.path),
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
    last = f"; page: {files[-1]}" if files else ""
    say(f"Measured {measured}; results: {kept.path}{last}")


@_measures()
def accuracy(seeds: Seeds = None, jobs: Jobs = 1) -> Suite:
    """Train with the paper's settings and with the best found; validation chooses."""
    _on_the_cpu()
    from benchmarks.accuracy import SEEDS, experiments

    together = partial(pages.measure, jobs=jobs)
    return Suite(experiments(seeds or SEEDS), "accuracy.jsonl", "benchmarks.md", measure=together)


@_measures()
def estimators(
    data: Data = None, seeds: Seeds = None, jobs: Jobs = 1, quick: Quick = False
) -> Suite:
    """Compare all estimators: error of the gradient, time of a step, both at once, accuracy."""
    _on_the_cpu()
    from benchmarks.estimators import DATA, FULL, QUICK, experiments

    effort = QUICK if quick else FULL
    effort = effort if seeds is None else replace(effort, seeds=seeds)
    compared = experiments(effort, data or DATA)
    return Suite(
        compared, "estimators.jsonl", "estimators.md", also=("accuracy.jsonl",),
        measure=partial(pages.measure, jobs=jobs),
    )  # fmt: skip


@_measures()
def speed(
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu", quick: Quick = False
) -> Suite:
    """Time what a user waits for: steps, epochs, scores, memory, starting; and other programs."""
    from benchmarks.speed import FULL, QUICK, cpu_experiments, gpu_experiments

    effort = QUICK if quick else FULL
    if device == "cuda":
        return Suite(gpu_experiments(effort), "speed-cuda.jsonl", "gpu.md")
    if device == "cpu":
        return Suite(cpu_experiments(effort), "speed.jsonl", "speed.md")
    raise InputError(f"device must be cpu or cuda, got {device!r}")


@_measures()
def peers(
    data: Data = None,
    splits: Annotated[int, typer.Option(help="Random splits 0..N-1.")] = 5,
    seeds: Annotated[int, typer.Option(help="Seeds 0..N-1 of every split.")] = 5,
    device: Annotated[str, typer.Option(help="Of PyG's accuracy: cpu, cuda, or none.")] = "cpu",
    jobs: Annotated[
        int, typer.Option(help="Processes in which ours train beside PyG's; 0: after them.")
    ] = 0,
    budget: Annotated[float, typer.Option(help="Seconds for the accuracy, about.")] = 86_400,
) -> Suite:
    """Compare the default with PyG and DGL: accuracy, and the validation score over time."""
    from benchmarks.peers.accuracy import DATA, Plan, measure_all
    from benchmarks.peers.duels import experiments
    from benchmarks.peers.paired import experiment

    plan = Plan(data or DATA, splits, seeds)
    accuracy = experiment(plan)

    def measure(chosen: list[pages.Experiment], kept: Results) -> int:
        before = len(kept)
        if accuracy in chosen:
            measure_all(kept.path, plan, device=device, jobs=jobs, budget=budget)
            kept.read_again()
        return len(kept) - before + pages.measure(chosen, kept)

    everything = [accuracy, *experiments()]
    return Suite(everything, "peers.jsonl", "benchmarks.md", measure=measure)


@_measures()
def readme() -> Suite:
    """Write the README's figures from the results on file; nothing is measured."""
    from benchmarks.readme import FILES, experiments

    return Suite(experiments(), "peers.jsonl", "README.md", folder=".", also=FILES)


@_measures()
def loader() -> Suite:
    """Compare `LayerLoader` with the loaders of DGL and PyG, and measure its bias."""
    from benchmarks.loader import experiments

    return Suite(experiments(), "loader.jsonl", "own-networks.md")


@_measures()
def reproduce(
    quick: Quick = False,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    reddit: Annotated[
        str | None,
        typer.Option(help="A name or path of Reddit; without it, the stand-in reddit-sim."),
    ] = None,
) -> Suite:
    """Measure the paper's tables and figures here, and show them beside the paper's numbers."""
    _on_the_cpu()
    from benchmarks import paper, paper_scale

    scale = paper_scale.quick() if quick else paper_scale.full()
    if seeds is not None:
        scale = paper_scale.with_seeds(scale, seeds)
    if reddit is not None:
        scale = replace(scale, large=replace(scale.large, name=reddit))

    return Suite(
        paper.experiments(scale), "reproduce.jsonl", "reproduction.md", also=("accuracy.jsonl",),
        measure=partial(pages.measure, jobs=jobs),
    )  # fmt: skip


@_measures("import")
def import_(
    edges: Annotated[int, typer.Option(help="Edges of the table.")] = 20_000_000,
    nodes: Annotated[int, typer.Option(help="Nodes of the table.")] = 1_000_000,
    ids: Annotated[str, typer.Option(help="counting, shuffled, sparse or text.")] = "counting",
    memory: Annotated[str, typer.Option(help="What the import may use.")] = "1GB",
) -> Suite:
    """Import tables of random edges, against scipy in memory."""
    from benchmarks.data_costs import Tables, import_experiment

    tables = Tables(edges=edges, nodes=nodes, ids=ids, memory=memory)
    return Suite([import_experiment(tables)], "import.jsonl", "benchmarks.md")


@_measures()
def tables(
    customers: Annotated[int, typer.Option(help="Rows of the node table.")] = 200_000,
    payments: Annotated[int, typer.Option(help="Rows of the edge table.")] = 2_000_000,
    seeds: Seeds = None,
) -> Suite:
    """Train on tables of customers and payments, beside boosted trees on the same columns."""
    from benchmarks.tables import SEEDS, Bank, experiment

    bank = Bank(customers, payments, customers // 100)
    return Suite([experiment(bank, seeds or SEEDS)], "tables.jsonl", "tutorial.md")


@_measures()
def generate(scratch: Scratch = Path("/tmp")) -> Suite:
    """Generate a graph of Reddit's size, and open a store of 5 GB (needs 6 GB free)."""
    from benchmarks.data_costs import generate_experiment

    return Suite([generate_experiment(scratch)], "generate.jsonl", "benchmarks.md")


@_measures("out-of-core")
def out_of_core(
    scratch: Scratch,
    limit: Annotated[str, typer.Option(help="What a process may allocate.")] = "4GB",
) -> Suite:
    """Train on features larger than the memory that a process may take (needs 40 GB free)."""
    from benchmarks.out_of_core import experiments

    return Suite(experiments(scratch, limit), "scale.jsonl")


@_measures()
def distributed(
    data: Annotated[str, typer.Option(help="A data set.")] = "reddit-sim",
    steps: Annotated[int, typer.Option(help="Steps of a round.")] = 15,
    rounds: Annotated[int, typer.Option(help="Rounds of one rank and of two.")] = 3,
) -> Suite:
    """Train over several processes: throughput, bytes on the wire, memory of each."""
    from benchmarks.distributed import experiments

    return Suite(experiments(data, steps, rounds), "scale.jsonl")


@app.command()
def verify(
    jobs: Jobs = 2,
    results: Annotated[Path, typer.Option(help="Folder of result files.")] = Path("results"),
    json: Json = False,
) -> None:
    """Train the headline scores again; fail where a mean leaves the interval of those on file."""
    _on_the_cpu()
    from benchmarks import headline
    from benchmarks.accuracy import SEEDS
    from benchmarks.peers.accuracy import Plan

    paper = headline.paper_headlines(Results(results / "accuracy.jsonl"), seeds=SEEDS)
    kept = Results(results / "peers.jsonl")
    rows = paper + headline.default_headlines(kept, headline.DEFAULT_ON, Plan())
    if not rows:
        raise InputError(f"{results} has no scores to hold new ones against")
    verdicts = headline.check(rows, jobs)
    if json:
        emit_json({"rows": headline.as_records(verdicts)})
    else:
        table = headline.table(verdicts)
        show_table(table.caption, table.head, table.rows)
    if wrong := [each.sentence for each in verdicts if not each.holds]:
        raise InputError("; ".join(wrong))


@app.command()
def serve(
    scratch: Scratch,
    seconds: Annotated[float, typer.Option(help="Of the steady load; of the faults as well.")] = 60,
    nodes: Annotated[int, typer.Option(help="Nodes of the graph, with ten edges each.")] = 200_000,
    only: Annotated[str | None, typer.Option(help="latency or faults; by default both.")] = None,
    json: Json = False,
) -> None:
    """Load a service: latency beside the bare call, and mixed requests with faults."""
    from benchmarks.serve import Case, faults, latency

    case = Case.prepared(scratch, nodes, 10 * nodes)
    parts = {"latency": latency, "faults": faults}
    if only is not None and only not in parts:
        raise InputError(f"--only must be latency or faults, got {only!r}")
    found = {name: do(case, seconds) for name, do in parts.items() if only in (None, name)}
    if json:
        emit_json(found)
        return
    for name, figures in found.items():
        rows = [(key, f"{v:.4g}" if isinstance(v, float) else v) for key, v in figures.items()]
        show_table(name, ("", ""), rows)


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
            for line in (f"{title}:", *(f"  {each}" for each in details)):
                say(line)


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
