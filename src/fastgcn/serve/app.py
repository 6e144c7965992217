"""The application: what can be asked over HTTP, in JSON, Arrow or CSV."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException

from fastgcn._version import __version__
from fastgcn.errors import BusyError, FastGCNError
from fastgcn.files import finite
from fastgcn.infer.tables import csv_bytes, rows_as_json
from fastgcn.serve import pages
from fastgcn.serve.answers import Served
from fastgcn.serve.guard import Guard, Measures, error_body, undisturbed
from fastgcn.serve.lanes import Lane
from fastgcn.serve.limits import RequestError
from fastgcn.serve.releases import Releases

T = TypeVar("T")

ARROW, CSV, JSON = "application/vnd.apache.arrow.stream", "text/csv", "application/json"
_FOLLOW = 0.5  # seconds between looks for a newer release
_LONGEST_ID = 1_000
_SMALL = 100  # rows that are written between two requests

log = logging.getLogger("fastgcn.serve")


class _Model(BaseModel):
    """A body; what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


Id = Annotated[str, StringConstraints(max_length=_LONGEST_ID)] | int
Top = Annotated[int | None, Field(description="Only the K most probable classes of each node.")]
Weight = Annotated[
    float | None, Field(gt=0, allow_inf_nan=False, description="The weight of edges without one.")
]


class Ids(_Model):
    ids: Annotated[list[Id], Field(min_length=1, description="Your own ids of nodes.")]
    top: Top = None


class Embeddings(_Model):
    ids: Annotated[list[Id], Field(min_length=1, description="Your own ids of nodes.")]
    layer: Annotated[
        int, Field(description="1..M; -1: the last hidden one, M: class scores, 0: features.")
    ] = -1


class NewNodes(_Model):
    """Rows with the columns of your own tables; or the text of two CSV files."""

    nodes: Annotated[
        list[dict[str, Any]] | None, Field(description="Rows with your own columns.")
    ] = None
    edges: Annotated[
        list[dict[str, Any]] | None, Field(description="Rows with both ends, and the weight.")
    ] = None
    nodes_csv: Annotated[str | None, Field(description="Instead: the text of a CSV file.")] = None
    edges_csv: Annotated[str | None, Field(description="Instead: the text of a CSV file.")] = None
    default_weight: Weight = None


class Changes(_Model):
    id: Annotated[Id, Field(description="Your own id of the node.")]
    features: Annotated[dict[str, Any], Field(description="New values by column.")] = {}
    add: Annotated[list[Id], Field(description="Ids of new neighbours.")] = []
    remove: Annotated[list[Id], Field(description="Ids of neighbours to remove.")] = []
    weight: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="Of new edges, if edges have weights.")
    ] = 1.0


class Reload(_Model):
    run: Annotated[str, Field(max_length=_LONGEST_ID, description="One of `runs` in /model.")]


@dataclass(slots=True)
class _State:
    """What the worker answers with, and its two threads: short computations do not wait for
    explanations."""

    served: Served
    quick: Lane
    slow: Lane
    ready: bool = True


def create_app(releases: Releases, token: str | None, threads: int = 1) -> FastAPI:
    """The application of one worker."""
    limits, measures = releases.limits, Measures()
    states: list[_State] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        quick, slow = (
            Lane(name, limits.queue, limits.nodes, threads, measures.together.observe)
            for name in ("quick", "slow")
        )
        # This frame lives as long as the service, so no name in it may keep a release.
        state = _State(
            await asyncio.to_thread(lambda: releases.open(releases.current())), quick, slow
        )
        states[:] = [state]
        _say("ready", state, measures)
        follower = asyncio.create_task(_follow(releases, state, measures))
        with undisturbed():
            yield
        state.ready = False
        follower.cancel()
        with suppress(asyncio.CancelledError):
            await follower
        quick.close()
        slow.close()
        log.info("drained")

    app = FastAPI(
        title="fastgcn",
        version=__version__,
        summary="Ask a trained graph network.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={"4XX": {"description": 'One sentence: {"error": "..."}'}},
    )
    app.add_middleware(Guard, limits=limits, token=token, measures=measures)
    _add_errors(app)
    pages.add_pages(app)

    async def computed(work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(limits.seconds):
                return await work
        except TimeoutError:
            raise RequestError(
                504, f"this took longer than {limits.seconds:g} seconds, the limit of a request"
            ) from None

    @app.post("/predict", response_class=Response)
    async def predict(request: Request, body: Ids) -> Response:
        """Predictions for nodes of the graph."""
        state, served = states[0], states[0].served
        nodes = served.find(body.ids)
        served.check_answer(len(nodes), served.model.sizes[-1])
        if served.table is not None:
            rows = served.stored(nodes)
        else:
            asked = state.quick.ask_together(
                served.predicted, nodes, ("predict", served.number), len(nodes)
            )
            rows = await computed(asked)
        return await answer(
            request, served, len(nodes), lambda: served.prediction_table(nodes, rows, body.top)
        )

    @app.post("/embed", response_class=Response)
    async def embed(request: Request, body: Embeddings) -> Response:
        """Hidden rows of nodes of the graph."""
        state, served = states[0], states[0].served
        nodes, layers = served.find(body.ids), served.layer(body.layer)
        served.check_answer(len(nodes), served.model.sizes[layers])

        def work(asked: Any) -> Any:
            return served.hidden(asked, layers)

        key = ("embed", served.number, layers)
        rows = await computed(state.quick.ask_together(work, nodes, key, len(nodes)))
        return await answer(
            request, served, len(nodes), lambda: served.embedding_table(nodes, rows)
        )

    @app.post("/predict-new", response_class=Response)
    async def predict_new(request: Request, body: NewNodes) -> Response:
        """Predictions for nodes that the graph does not have, by your own columns."""
        served = states[0].served
        work = _new_nodes(served, body)
        columns, notes = await computed(states[0].quick.ask(work))
        return await answer(request, served, len(columns["id"]), lambda: columns, notes)

    @app.post("/what-if", response_class=Response)
    async def what_if(body: Changes) -> Response:
        """The prediction for a node if its features or edges were others."""
        served = states[0].served
        (node,) = served.find([body.id]).tolist()
        found = await computed(
            states[0].slow.ask(
                lambda: served.what_if(node, body.features, body.add, body.remove, body.weight)
            )
        )
        return plain({"run": served.name, **found})

    @app.get("/nodes/{id:path}", response_class=Response)  # an id may have a slash
    async def node(
        id: Annotated[str, Path(max_length=_LONGEST_ID, description="Your own id of the node.")],
        neighbors: Annotated[
            int, Query(ge=0, le=1_000, description="How many neighbours, at most.")
        ] = 50,
        explain: Annotated[bool, Query(description="Also why; takes longer.")] = True,
        top: Annotated[int, Query(ge=1, le=1_000, description="Of the explanation.")] = 10,
    ) -> Response:
        """A node: its features, neighbours, prediction, and why."""
        served = states[0].served
        (number,) = served.find([id]).tolist()
        lane = states[0].slow if explain else states[0].quick
        found = await computed(lane.ask(lambda: served.describe(number, neighbors, explain, top)))
        return plain({"run": served.name, **found})

    @app.get("/model", response_class=Response)
    async def model() -> Response:
        """What the service answers with: classes, columns, counts, scores, limits."""
        about = await asyncio.to_thread(states[0].served.about)
        return plain({**about, "runs": list(releases.choices()), "version": __version__})

    @app.post("/reload", response_class=Response)
    async def reload(body: Annotated[Reload, Body()]) -> Response:
        """Answer with another run. Requests that are under way get the answers of the old one."""
        state = states[0]
        try:
            number = await asyncio.to_thread(releases.publish, body.run)
        except BusyError:
            raise RequestError(409, "another reload is under way; ask again", retry=1) from None
        await _open(releases, state, measures, number)
        return plain({"run": state.served.name, "release": state.served.number})

    @app.get("/healthz", response_class=Response)
    async def healthz() -> Response:
        """The process is alive."""
        return plain({"status": "ok"})

    @app.get("/readyz", response_class=Response)
    async def readyz() -> Response:
        """The service takes requests."""
        if not states or not states[0].ready or len(states[0].quick) >= limits.queue:
            raise RequestError(503, "the service does not take requests now", retry=1)
        return plain({"status": "ready", "run": states[0].served.name})

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        measures.waiting.set(len(states[0].quick) + len(states[0].slow))
        return Response(measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def answer(
        request: Request,
        served: Served,
        count: int,
        columns: Callable[[], dict[str, Any]],
        notes: list[str] | None = None,
    ) -> Response:
        measures.rows.inc(count)
        request.state.about = {"nodes": count}
        accept = request.headers.get("accept", "*/*")

        def work() -> Response:
            return table_answer(accept, served.name, columns(), notes or [])

        # A large answer takes long to write, and others should not wait for it.
        return work() if count <= _SMALL else await asyncio.to_thread(work)

    return app


def _new_nodes(served: Served, body: NewNodes) -> Callable[[], tuple[dict[str, Any], list[str]]]:
    """The computation that a body asks for."""
    rows, texts = (body.nodes, body.edges), (body.nodes_csv, body.edges_csv)
    weight = body.default_weight
    if body.nodes is not None and texts == (None, None):
        nodes, edges = body.nodes, body.edges or []
        return lambda: served.new_from_rows(nodes, edges, weight)
    if rows == (None, None) and body.nodes_csv is not None and body.edges_csv is not None:
        one, other = body.nodes_csv, body.edges_csv
        return lambda: served.new_from_csv(one, other, weight)
    raise RequestError(
        422, "new nodes need nodes and edges, as lists of rows, or else nodes_csv and edges_csv"
    )


async def _open(releases: Releases, state: _State, measures: Measures, number: int) -> None:
    """Open a release beside the one that answers, then put it in its place."""
    opened = await asyncio.to_thread(releases.open, number, state.served)
    if opened.number > state.served.number:
        state.served = opened
        _say("reloaded", state, measures)


def _say(event: str, state: _State, measures: Measures) -> None:
    """Measure and log which release answers from now on."""
    served = state.served
    measures.release.set(served.number)
    log.info(event, extra={"about": {"run": served.name, "release": served.number}})


async def _follow(releases: Releases, state: _State, measures: Measures) -> None:
    """Open releases that other workers have made."""
    while True:
        await asyncio.sleep(_FOLLOW)
        try:
            number = releases.current()
            if number > state.served.number:
                await _open(releases, state, measures, number)
        except Exception:  # such as one that a yet newer one replaced: the next look finds that
            log.exception("a release could not be opened")


def table_answer(accept: str, run: str, columns: dict[str, Any], notes: list[str]) -> Response:
    """A table in the form that the client asks for: JSON, Arrow or CSV."""
    kinds = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    headers = {"x-fastgcn-run": json.dumps(run)}
    for kind in kinds:
        if kind in (JSON, "*/*", "application/*", ""):
            found = {"run": run, "rows": rows_as_json([columns])}
            return plain(found | ({"notes": notes} if notes else {}))
        if kind == CSV:
            headers["x-fastgcn-notes"] = json.dumps(notes)
            return Response(csv_bytes(columns), media_type=CSV, headers=headers)
        if kind == ARROW:
            headers["x-fastgcn-notes"] = json.dumps(notes)
            return Response(arrow_bytes(columns), media_type=ARROW, headers=headers)
    raise RequestError(406, f"answers are {JSON}, {ARROW} or {CSV}; ask for one of them in Accept")


def arrow_bytes(columns: dict[str, Any]) -> bytes:
    """An Arrow stream."""
    import pyarrow

    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def plain(value: Any) -> Response:
    return Response(json.dumps(finite(value), allow_nan=False), media_type=JSON)


def _add_errors(app: FastAPI) -> None:
    """Every failure is one sentence, as {"error": "..."}."""

    def answer(status: int, message: str, retry: int | None = None) -> Response:
        headers = {} if retry is None else {"Retry-After": str(retry)}
        return Response(error_body(message), status, media_type=JSON, headers=headers)

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        return answer(error.status, str(error), error.retry)

    @app.exception_handler(FastGCNError)
    async def mistaken(_: Request, error: FastGCNError) -> Response:
        return answer(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            reason = first.get("ctx", {}).get("error", "it cannot be parsed")
            return answer(400, f"the body is not JSON: {reason}")
        place = ".".join(
            str(each) for each in first["loc"][1:] if not str(each).startswith("constr")
        )
        return answer(422, f"{place or 'the body'}: {first['msg']}"[:300])

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        known = {
            404: f"there is no {request.url.path[:100]!r} here; /docs lists what there is",
            405: f"{request.method[:10]} is not for this address; /docs lists what is",
        }
        bare = error.detail in ("Not Found", "Method Not Allowed")
        return answer(error.status_code, known[error.status_code] if bare else str(error.detail))

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        number = getattr(request.state, "request", "")
        return answer(500, f"something inside fastgcn failed; the log has request {number}")
