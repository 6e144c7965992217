"""What an import of tables has decided, as plain data: columns, encoders and notes.

A store keeps it in its manifest, a graph as `Graph.imported`, and a run in its `config.json`, so
that rows of new nodes are encoded like those of the training nodes. `data.tables.encoders` reads
and writes the encoders; this module only checks them and loads no Arrow.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from fastgcn.errors import InputError, MissingFileError
from fastgcn.schema import (
    MOST,
    Check,
    boolean,
    integer,
    list_of,
    mapping,
    optional,
    read_any,
    record,
    refuse,
    text,
    validate,
)

SCALES = ("none", "standard", "quantile", "constant")

_WIDTH = integer(1, 2**31 - 1)


def _finite(value: Any, field: str) -> None:
    if type(value) not in (int, float) or not -1e300 < value < 1e300:
        raise refuse(field, "a finite number", value)


def _deviation(value: Any, field: str) -> None:
    _finite(value, field)
    if value <= 0:
        raise refuse(field, "a positive number", value)


def _scale(value: Any, field: str) -> None:
    if value not in SCALES:
        raise refuse(field, f"one of {', '.join(SCALES)}", value)


_NUMBERS = {"mean": _finite, "deviation": _deviation}

# The state of each kind of encoder; every encoder also has a column, and `missing`: true if a
# feature of its own says that a node has no value there.
KINDS: dict[str, dict[str, Check]] = {
    "number": {
        **_NUMBERS,
        "scale": _scale,
        "quantiles": list_of(_finite, longest=10_001),
    },
    "category": {"values": list_of(text())},
    "hashed": {"width": _WIDTH},
    "date": {**_NUMBERS, "hours": boolean, "format": optional(text(100))},
    "vocabulary": {"idf": list_of(_finite, shortest=1), "words": list_of(text())},
    "text": {"idf": list_of(_finite, shortest=1)},
    "vector": {"width": _WIDTH},
}


def _encoder(value: Any, field: str) -> None:
    record({"column": text(), "kind": text(), "missing": boolean})(value, field)
    if value["kind"] not in KINDS:
        raise refuse(f"{field}.kind", f"one of {', '.join(KINDS)}", value["kind"])
    record(KINDS[value["kind"]])(value, field)
    if value["kind"] == "vocabulary":
        words = value["words"]
        if len(words) > len(value["idf"]) or len(set(words)) < len(words):
            raise refuse(f"{field}.words", "distinct words, no more than features", words)
    if value["kind"] == "number" and value["scale"] == "quantile":
        points = value["quantiles"]
        if len(points) < 2 or any(b < a for a, b in pairwise(points)):
            raise refuse(f"{field}.quantiles", "two or more numbers in ascending order", points)


IMPORTED: Check = record(
    {
        "columns": mapping(text()),
        "encoders": list_of(_encoder, longest=MOST),
        "notes": list_of(text()),
    },
    {"types": optional(mapping(_finite)), "structure": optional(integer(0, 4096))},
)

# The columns of tables of new nodes, unless the import names others.
COLUMNS = {"id": "id", "source": "source", "target": "target", "weight": "weight"}


def plain_encoders(names: list[str]) -> list[dict[str, Any]]:
    """Encoders that take numbers as they are; stores of earlier versions have no others."""
    number = {"kind": "number", "missing": False, "scale": "none", "quantiles": []}
    return [{"column": name, **number, "mean": 0.0, "deviation": 1.0} for name in names]


def read_imported(folder: Path) -> dict[str, Any]:
    """What the import of a store's tables has decided, or of those that a run was trained on."""
    for name in ("graph.json", "config.json"):
        if (folder / name).is_file():
            found = read_any(folder / name, f"{folder / name} is missing")
            imported = found.get("imported") if isinstance(found, dict) else None
            if imported is None:
                raise InputError(f"{folder} has no encoders: it does not come from tables")
            validate(imported, IMPORTED, folder / name, "import the tables again")
            return dict(imported)
    raise MissingFileError(f"{folder} is neither a store nor a run: it has no encoders")


def same_encoders(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """True if both encode alike, or if one of them is not known."""
    return (
        one is None
        or other is None
        or all(one.get(key) == other.get(key) for key in ("encoders", "structure"))
    )
