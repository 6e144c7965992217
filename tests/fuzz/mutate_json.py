"""Mutations of JSON documents: of a value, a key or a list anywhere in them."""

import json
from random import Random
from typing import Any

from tests.fuzz.mutate_bytes import mutate_bytes, mutate_text
from tests.fuzz.values import DTYPES, FLOATS, INTEGERS, RAW_JSON, TEXTS

_RAW = "@raw-json@"


def mutate_json(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    if rng.random() < 0.15:
        return mutate_bytes(data, rng, other)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(data, rng, other)
    return changed_json(document, rng, _parsed(other)).encode(errors="surrogatepass")


def mutate_json_lines(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    """One JSON document a line."""
    lines = data.splitlines(keepends=True)
    if not lines or rng.random() < 0.4:
        return mutate_text(data, rng, other)
    at = rng.randrange(len(lines))
    lines[at] = mutate_json(lines[at], rng, other) + b"\n"
    return b"".join(lines)


def changed_json(document: Any, rng: Random, other: Any = None) -> str:
    """The text of a document with one change; `other` is a document to take values from."""
    holder = [document]
    raw = _change(holder, rng, other)
    text = json.dumps(holder[0])
    return text.replace(f'"{_RAW}"', raw, 1) if raw is not None else text


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _places(value: Any, found: list[tuple[Any, Any]]) -> None:
    """Every place of a document, as a container and a key; of long lists only some."""
    if isinstance(value, dict):
        keys: Any = value
    elif isinstance(value, list):
        n = len(value)
        keys = range(n) if n <= 12 else (0, 1, 2, n // 2, n - 2, n - 1)
    else:
        return
    for key in keys:
        found.append((value, key))
        _places(value[key], found)


def _change(holder: list[Any], rng: Random, other: Any) -> str | None:
    """Change one place below `holder`; returns the raw text to put there, if any."""
    places: list[tuple[Any, Any]] = [(holder, 0)]
    _places(holder[0], places)
    container, key = rng.choice(places) if rng.random() < 0.95 else places[0]
    value = container[key]
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.8:
        inner = _parsed(value.encode(errors="surrogatepass"))
        if inner is not None:  # a document inside a text, as in the metadata of weights
            container[key] = changed_json(inner, rng, other)
            return None
    match rng.randrange(14):
        case 0 if container is not holder:
            del container[key]
        case 1 if isinstance(container, dict):
            container[rng.choice((*container, *TEXTS))] = container.pop(key)
        case 2 if isinstance(container, dict):
            container[rng.choice(TEXTS)] = value
        case 3 if isinstance(container, list):
            container.insert(key, value)
        case 4:
            elsewhere, its_key = rng.choice(places)
            if not _contains(elsewhere[its_key], container):
                container[key] = elsewhere[its_key]
        case 5 if isinstance(value, list):
            container[key] = rng.choice(
                (value[::-1], value[1:], value[:-1], value * 2, sorted(value, key=str))
            )
        case 6 | 7 if isinstance(value, int | float) and not isinstance(value, bool):
            container[key] = value + rng.choice((-1, 1, 0.5, -2 * value, 1 << 31))
        case 8:
            container[key] = rng.choice(TEXTS)
        case 9:
            container[key] = rng.choice(FLOATS)
        case 10:
            container[key] = rng.choice(
                (None, True, False, [], {}, [[]], [None], {"": None}, [value], {"a": value})
            )
        case 11 if rng.random() < 0.5:
            container[key] = _RAW
            return rng.choice(RAW_JSON)
        case 12 if isinstance(value, str):
            container[key] = rng.choice(
                (*DTYPES, value + " ", value[:-1], value.upper(), value * 2)
            )
        case 13 if isinstance(other, dict | list) and other:
            taken: list[tuple[Any, Any]] = []
            _places(other, taken)
            source, its_key = rng.choice(taken)
            container[key] = source[its_key]
        case _:
            container[key] = rng.choice(INTEGERS)
    return None


def _contains(value: Any, container: Any) -> bool:
    """True if `container` lies within `value`: put into it, it would contain itself."""
    if value is container:
        return True
    if isinstance(value, dict):
        return any(_contains(each, container) for each in value.values())
    return isinstance(value, list) and any(_contains(each, container) for each in value)
