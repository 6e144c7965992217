"""`fastgcn serve`: a run as a service over HTTP, with a page for people."""

from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Annotated

import typer

from fastgcn.cli.apply import RunPath
from fastgcn.cli.ending import Stopped
from fastgcn.cli.output import say
from fastgcn.errors import InputError, library


def serve(
    run_path: RunPath,
    data: Annotated[
        str | None, typer.Option(help="The graph to use; by default each run's own.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; another than this machine needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token; by default FASTGCN_TOKEN of the environment."),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder with further runs, which POST /reload may choose.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes; they share a store.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of a computation.")] = 1,
    on_demand: Annotated[
        bool,
        typer.Option(
            "--on-demand",
            help="Compute a prediction when it is asked for; by default all of them at start.",
        ),
    ] = False,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a body.")] = 8 << 20,
    max_nodes: Annotated[int, typer.Option(min=1, help="Nodes of a request.")] = 10_000,
    max_edges: Annotated[int, typer.Option(min=1, help="New edges of a request.")] = 100_000,
    max_field: Annotated[
        int, typer.Option(min=1, help="Stored edges that a computation may read.")
    ] = 20_000_000,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of a request.")] = 30.0,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Requests that wait; further ones get 429.")
    ] = 64,
) -> None:
    """Answer questions about nodes over HTTP: predictions, new nodes, explanations, a web page."""
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        library(module, extra="serve")
    from fastgcn.serve.limits import Limits, check_exposure, read_token
    from fastgcn.serve.releases import Releases
    from fastgcn.serve.start import serve as start

    token = read_token(token_file)
    check_exposure(host, token)
    if runs is not None and not runs.is_dir():
        raise InputError(f"--runs must be a folder with runs, but there is no folder {runs}")
    limits = Limits(max_body, max_nodes, max_edges, max_field, max_seconds, max_queue)
    first = run_path.resolve()
    releases = Releases(Path(), first, runs and runs.resolve(), data, on_demand, limits)

    def ready(address: str) -> None:
        say(f"Serving {first.name} at {address} (page: {address}/, interface: {address}/docs)")

    try:
        start(
            releases, host=host, port=port, token=token, workers=workers, threads=threads,
            on_ready=ready,
        )  # fmt: skip
    except Stopped as stop:
        if stop.number not in (SIGINT, SIGTERM):  # the two that drain
            raise
    say("Stopped: every request that had begun was answered.")
