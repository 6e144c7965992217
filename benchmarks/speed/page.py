"""The page in docs that shows all figures of speed, each between its own marks."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import Record, Results
from benchmarks.speed.effort import Effort
from benchmarks.speed.figures import FIGURES, Figure, key, on_file
from benchmarks.speed.shown import Shown, claims_table
from fastgcn.errors import FormatError
from fastgcn.files import write_text
from fastgcn.report.page import Table, markdown

NOT_YET = "Not measured yet."
STAND_INS = "On small stand-ins (`--quick`): these are no figures of speed."


def marks(name: str) -> tuple[str, str]:
    """The lines before and after what is measured."""
    return f"<!-- speed {name}: begin -->", f"<!-- speed {name}: end -->"


def shown(
    effort: Effort, results: Results, figures: Sequence[Figure] = FIGURES
) -> dict[str, Shown]:
    """The figures whose parts are all on file but for optional ones, by name."""
    found = {}
    for figure in figures:
        records = on_file(figure, effort, results)
        wanted = {part.name for part in figure.parts(effort) if not part.optional}
        if wanted <= records.keys():
            found[figure.name] = figure.show(records)
    return found


def tables(figure: Figure, what: Shown) -> list[Table]:
    """What was asked beside what was measured, then the rest."""
    return [claims_table(what.claims, figure.title), *what.tables]


def write_page(
    path: Path, effort: Effort, results: Results, figures: Sequence[Figure] = FIGURES
) -> list[Path]:
    """Put all figures on file between their marks; the files written, the page last.

    Pictures go into the folder `figures` beside the page. A page that does not exist is made.
    """
    check_marks(path, figures)
    text = path.read_text(encoding="utf-8") if path.exists() else _blank(figures)
    found = shown(effort, results, figures)
    pictures: list[Path] = []
    for figure in figures:
        parts = [NOT_YET + "\n"]
        if figure.name in found:
            what = found[figure.name]
            first = figure.parts(effort)[0]
            parts = [STAND_INS + "\n"] if effort.stand_ins else []
            parts += [markdown(table) for table in tables(figure, what)]
            parts += [_link(path, file, what, pictures) for file in what.pictures]
            parts.append(_where(results.where(key(figure, first)) or {}))
        begin, end = marks(figure.name)
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n" + "\n".join(parts) + f"\n{end}{rest.split(end)[1]}"
    write_text(path, text)
    return [*pictures, path]


def check_marks(path: Path, figures: Sequence[Figure] = FIGURES) -> None:
    """Refuse a page that has no place for what is measured."""
    text = path.read_text(encoding="utf-8") if path.exists() else _blank(figures)
    for figure in figures:
        begin, end = marks(figure.name)
        if [text.count(begin), text.count(end)] != [1, 1] or text.index(begin) > text.index(end):
            raise FormatError(
                f"{path} must hold the line {begin} and after it the line {end}, once each, "
                "between which the tables go"
            )


def _blank(figures: Sequence[Figure]) -> str:
    sections = [
        "\n".join([f"## {figure.title}\n", *marks(figure.name)]) + "\n" for figure in figures
    ]
    return "\n".join(["# Speed\n", *sections])


def _link(page: Path, file: str, what: Shown, written: list[Path]) -> str:
    """Write a picture, and say how the page shows it."""
    picture, path = what.pictures[file], page.parent / "figures" / f"{file}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, picture.svg + "\n")
    written.append(path)
    return f"![{picture.caption}](figures/{path.name})\n"


def _where(where: Record) -> str:
    gpu = f", {where['gpu']}" if where.get("gpu") else ""
    return (
        f"Measured on {where.get('processor')}, {where.get('cores')} cores{gpu}; "
        f"fastgcn {where.get('fastgcn')}, commit {where.get('commit')}, "
        f"torch {where.get('torch')}.\n"
    )


def as_json(found: dict[str, Shown]) -> list[Record]:
    """All claims, one record each."""
    return [
        {
            "figure": name,
            "what": claim.what,
            "value": claim.value,
            "at_most": claim.at_most,
            "at_least": claim.at_least,
            "met": claim.met,
        }
        for name, what in found.items()
        for claim in what.claims
    ]


def tables_shown(found: dict[str, Shown], names: Sequence[str]) -> list[Table]:
    """All tables of the figures of these names."""
    return [
        table
        for figure in FIGURES
        if figure.name in names and figure.name in found
        for table in tables(figure, found[figure.name])
    ]
