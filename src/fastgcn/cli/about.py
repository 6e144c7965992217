"""`fastgcn settings` and `fastgcn doctor`: what can be set, and whether everything works here."""

from itertools import groupby
from typing import Annotated

import typer

from fastgcn.cli.data import Json
from fastgcn.cli.output import emit_json, say, show_table
from fastgcn.config import SETTINGS
from fastgcn.errors import InputError, nearest


def settings(
    name: Annotated[
        str | None, typer.Argument(help="Show this setting only, with what it may be.")
    ] = None,
    json: Json = False,
) -> None:
    """List every setting of `train` with its default and its meaning."""
    if name is not None:
        name = name.removeprefix("--").replace("-", "_")
        if name not in SETTINGS:
            raise InputError(f"there is no setting {name!r}{nearest(name, SETTINGS)}")
    shown = list(SETTINGS.values()) if name is None else [SETTINGS[name]]
    if json:
        emit_json({"settings": [each.as_data() for each in shown]})
        return
    for group, members in groupby(shown, lambda each: each.group):
        rows = [(each.name, each.default_text, each.help) for each in members]
        show_table(f"{group} settings", ("setting", "default", "meaning"), rows, text=(2,))
    if name is not None:
        say(f"Flag {SETTINGS[name].flag}; the value must be {SETTINGS[name].allowed}.")
    else:
        say(
            "Automatic ones are chosen for the graph. Set them by flags (--batch-size 512), by "
            "--set batch_size=512, in a TOML file (--config FILE), or in Python: "
            "fit(graph, batch_size=512)."
        )


def doctor(json: Json = False) -> None:
    """Check this installation: versions, devices, threads, folders, and that kernels compile."""
    from fastgcn.doctor import examine

    found = examine()
    if json:
        emit_json(found.as_data())
    else:
        for title, facts in found.facts.items():
            show_table(title, ("", ""), list(facts.items()), text=(1,))
        marks = {True: "ok", False: "BROKEN"}
        rows = [(each.name, marks[each.ok], each.found) for each in found.checks]
        show_table("Checks", ("", "", ""), rows, text=(1, 2))
        for each in found.broken:
            say(f"{each.name}: {each.fix}")
        if not found.broken:
            say("Everything works.")
    if found.broken:
        raise typer.Exit(1)
