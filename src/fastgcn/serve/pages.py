"""The page for people at `/`, its files, and the page about the interface at `/docs`.

All files come with the package. They are read once; a request only chooses among their names.
"""

from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from jinja2 import Environment
from starlette.exceptions import HTTPException

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def static_files() -> dict[str, tuple[bytes, str]]:
    """The files by name: their bytes and their media type."""
    folder = files("fastgcn.serve") / "static"
    return {
        each.name: (each.read_bytes(), _KINDS[suffix])
        for each in folder.iterdir()
        if (suffix := "." + each.name.rpartition(".")[2]) in _KINDS
    }


def add_pages(app: FastAPI) -> None:
    """Routes of the pages; they are not part of the interface that /docs describes."""
    found = static_files()

    def page(name: str) -> Response:
        if name not in found:
            raise HTTPException(404)
        body, kind = found[name]
        return Response(body, media_type=kind, headers={"cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return page("index.html")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        return page(name)

    @app.get("/docs", include_in_schema=False)
    async def docs(_: Request) -> Response:
        template = Environment(autoescape=True).from_string(found["docs.html"][0].decode())
        text = template.render(title=app.title, version=app.version, calls=calls(app.openapi()))
        return Response(text, media_type=_KINDS[".html"])


def calls(described: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of an OpenAPI description as rows: method, path, what it does, what it takes."""
    schemas = described.get("components", {}).get("schemas", {})
    rows = []
    for path, methods in described["paths"].items():
        for method, call in methods.items():
            takes = [
                (each["name"], _kind(each.get("schema", {})), each.get("description", ""))
                for each in call.get("parameters", [])
            ]
            body = call.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
            fields = schemas.get(name, {}).get("properties", {})
            takes += [
                (field, _kind(each), each.get("description", "")) for field, each in fields.items()
            ]
            does = call.get("description", "")
            rows.append({"method": method.upper(), "path": path, "does": does, "takes": takes})
    return rows


def _kind(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
