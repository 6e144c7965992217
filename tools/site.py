"""Hooks of MkDocs: pages that are made from the code, and outputs of notebooks.

A page names what belongs in it by a comment, `<!-- made by `make docs`: NAME -->`.
"""

import ast
import contextlib
import html
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOKS = "notebooks/"
_MADE = re.compile(r"<!-- made by `make docs`: (\w+) -->")
_CELL = re.compile(r"```python\n(.*?)```\n", re.DOTALL)
# Links to files beside docs/, which the site does not have.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!data\.md)([^)#]+?\.(?:py|md|lock|toml|yaml))\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """MkDocs calls this for each page before it is rendered."""
    markdown = _MADE.sub(lambda found: MAKERS[found[1]](), markdown)
    source = str(page.file.src_uri)
    if source.startswith(NOTEBOOKS):
        return with_outputs(markdown, source)
    if "/" not in source:
        markdown = _OUTSIDE.sub(r"`\2`", markdown)
    return markdown


def names() -> str:
    """Every public name, for mkdocstrings to document."""
    import fastgcn

    lines: list[str] = []
    for room, members in groupby(fastgcn._HOME.items(), lambda item: item[1].split(".")[1]):
        lines.append(f"\n## {ROOMS.get(room, room)}\n")
        lines += [f"::: {home}.{name}\n" for name, home in members]
    return "\n".join(lines)


ROOMS = {
    "data": "Data", "graph": "Graphs", "features": "Features", "sampling": "Sampling",
    "model": "Networks", "loader": "Loaders", "config": "Settings", "train": "Training",
    "tuning": "Tuning", "infer": "Predictions", "report": "Pictures", "metrics": "Scores",
    "estimator": "Estimators for scikit-learn", "errors": "Errors",
}  # fmt: skip


def commands() -> str:
    """Every command with its arguments and options."""
    import typer.main

    from fastgcn.cli import app

    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return "\n".join(_command(name, each) for name, each in found.items())


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([f"fastgcn {name}", *map(_argument, arguments)])
    rows = ["| option | meaning |", "|---|---|"]
    for each in command.params:
        shown = ", ".join([*each.opts, *each.secondary_opts])
        if each.param_type_name == "argument":
            shown = _argument(each)
        meaning = " ".join((getattr(each, "help", "") or "").split())
        rows.append(f"| `{shown}` | {_cell(meaning)} |")
    about = "\n".join(line.strip() for line in (command.help or "").splitlines())
    return (
        f"\n## fastgcn {name}\n\n{about}\n\n```console\n$ {usage} [OPTIONS]\n```\n\n"
        + "\n".join(rows)
    )


def _cell(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return html.escape(text, quote=False).replace("|", "\\|")


def _argument(parameter: Any) -> str:
    shown = parameter.metavar or parameter.name.upper()
    return str(shown if parameter.required else f"[{shown}]")


def settings() -> str:
    """Every setting by group: name, default, what it may be, meaning."""
    from fastgcn.config import SETTINGS

    lines: list[str] = []
    for group, members in groupby(SETTINGS.values(), lambda each: each.group):
        lines += [
            f"\n## {group}\n",
            "| setting | default | may be | meaning |",
            "|---|---|---|---|",
        ]
        for each in members:
            cells = (f"`{each.name}`", each.default_text, each.allowed, each.help)
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def changelog() -> str:
    """CHANGELOG.md, whose links are relative to the repository."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n", 1)[1]
    text = re.sub(r"\[([^\]]+)\]\([A-Z-]+\.md\)", r"`\1`", text)  # files beside docs/
    return re.sub(r"\]\(docs/", "](", text)


MAKERS: dict[str, Callable[[], str]] = {
    "names": names, "commands": commands, "settings": settings, "changelog": changelog,
}  # fmt: skip


def with_outputs(markdown: str, name: str) -> str:
    """A notebook, kept as Markdown, with the output of each cell below it."""
    outputs = iter(run_cells(_CELL.findall(markdown), name))
    return _CELL.sub(lambda cell: cell[0] + next(outputs), markdown)


def run_cells(cells: list[str], name: str) -> Iterator[str]:
    """Run cells one after the other, in a folder of their own; yield what each of them shows.

    That is what it prints, and the value of its last expression: HTML if it knows how, else text.
    """
    scope: dict[str, Any] = {"__name__": "notebook"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, code in enumerate(cells, start=1):
            yield _shown(*_run(code, f"{name}, cell {number}", scope))


def _run(code: str, name: str, scope: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and its last expression."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), scope)  # noqa: S307
    return printed.getvalue(), value


def _shown(printed: str, value: Any) -> str:
    parts = [f"```text\n{printed.rstrip()}\n```\n"] if printed.strip() else []
    if value is not None:
        made = getattr(value, "_repr_html_", lambda: None)()
        # Blank lines would end a block of HTML; pandas' styles are not the site's.
        unwanted = r'<style scoped>.*?</style>| border="1" class="dataframe"|\n(?=\s*\n)'
        made = made and re.sub(unwanted, "", made, flags=re.DOTALL)
        parts.append(
            (made and f'<div class="output">{made}</div>\n') or f"```text\n{value!r}\n```\n"
        )
    return "\n" + "\n".join(parts) if parts else ""


if str(ROOT / "src") not in sys.path and "PYTHONPATH" not in os.environ:
    sys.path.insert(0, str(ROOT / "src"))
