"""`fastgcn explain`: which features and which neighbours made a prediction."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgcn.cli.apply import Data, RunPath, Threads, held_to, open_run
from fastgcn.cli.data import Json, Seed, SplitName
from fastgcn.cli.output import emit_json, say, show_table, show_text
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.infer.explain import Explanation

_PICTURES = (".svg", ".png")


def explain(
    run_path: RunPath,
    data: Data = None,
    node: Annotated[str, typer.Option(show_default=False, help="Your own id of the node.")] = "",
    target: Annotated[
        str | None, typer.Option("--class", help="The class to explain; by default the predicted.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Features and neighbours to show.")] = 10,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the neighbours into this .svg or .png file.")
    ] = None,
    split: SplitName = None,
    split_seed: Seed = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Show which features and which neighbours made the prediction for a node."""
    from fastgcn.infer.explain import explain as find

    if not node:
        raise InputError("--node ID is needed: your own id of the node to explain")
    if picture is not None:
        _check_picture(picture)
    run, graph = open_run(run_path, data, split, split_seed)
    with held_to(threads):
        found = find(run, graph, node, target=target, top=top)
    if picture is not None:
        _draw(found, picture)
    if json:
        about = {"run": str(run_path)} | ({} if picture is None else {"picture": str(picture)})
        emit_json(about | found.to_dict())
        return
    _show(found)
    if picture is not None:
        say(f"Picture written to {picture}")


def _check_picture(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if path.suffix not in _PICTURES:
        raise InputError(f"--picture must end in {' or '.join(_PICTURES)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")


def _draw(found: "Explanation", path: Path) -> None:
    from fastgcn.report.explanation import explanation_picture
    from fastgcn.writing import write_bytes

    svg = explanation_picture(found)
    if path.suffix == ".svg":
        write_bytes(path, svg.encode())
        return
    import vl_convert

    write_bytes(path, vl_convert.svg_to_png(svg, scale=2))


_BOTH = ("log-odds", "probability")


def _show(found: "Explanation") -> None:
    from fastgcn.infer.explain import NUMBER

    label = "" if found.label is None else f" (in the graph: {found.label})"
    of_number = found.target == NUMBER
    explained = (
        f"Average features would give {found.baseline:.6g}."
        if of_number
        else f"Explained: {found.target}, probability {found.output:.4f}, log-odds "
        f"{found.score:+.3f} (baseline {found.baseline:+.3f})."
    )
    show_text(f"{found.node}: predicted {found.prediction or 'no label'}{label}. {explained}")
    show_table(
        f"Features by their effect on the {'number' if of_number else 'log-odds'}",
        ("", "value", "effect", "of the node", "of neighbours"),
        [
            (
                each.name,
                f"{each.value:g}" if isinstance(each.value, float) else each.value,
                *(
                    f"{part:+.4g}" if of_number else f"{part:+.3f}"
                    for part in (each.effect, each.own, each.effect - each.own)
                ),
            )
            for each in found.features
        ],
    )
    show_table(
        f"Neighbours by the effect of leaving them out, of {found.field - 1:,}",
        ("", "hops", "label", *(("effect",) if of_number else _BOTH), "mostly by"),
        [
            (
                each.id,
                each.hops,
                each.label or "",
                *(
                    [f"{each.effect:+.4g}"]
                    if of_number
                    else [f"{each.effect:+.3f}", f"{each.change:+.4f}"]
                ),
                each.feature,
            )
            for each in found.neighbors
        ],
    )
    for note in found.notes:
        say(f"Note: {note}.")
