"""Mutations of bytes and of text in lines and fields: CSV, TOML, lists of numbers."""

import re
from collections.abc import Callable
from random import Random

from tests.fuzz.values import FLOATS, INTEGERS, RAW_JSON, TEXTS

Mutation = Callable[[bytes, Random, bytes], bytes]
"""Takes the content, the source of chance, and another content of the corpus to splice in."""


def extreme_word(rng: Random) -> bytes:
    """An extreme integer in 1, 2, 4 or 8 bytes of either byte order."""
    size, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
    value = rng.choice(INTEGERS) % (1 << 8 * size)
    return value.to_bytes(size, "little" if order == "little" else "big")


def _place(data: bytes, rng: Random) -> int:
    """A position; headers and footers are as likely as all the rest."""
    n = len(data)
    kind = rng.random()
    if kind < 0.3:
        return rng.randrange(min(n, 64) + 1)
    if kind < 0.45:
        return n - rng.randrange(min(n, 64) + 1)
    return rng.randrange(n + 1)


def mutate_bytes(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    at, stop = _place(data, rng), _place(data, rng)
    first, last = min(at, stop), max(at, stop)
    match rng.randrange(13):
        case 0 | 1 | 2 if at < len(data):
            flipped = data[at] ^ (1 << rng.randrange(8))
            return data[:at] + bytes([flipped]) + data[at + 1 :]
        case 3 if at < len(data):
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case 4 | 5:
            word = extreme_word(rng)
            at -= at % len(word)
            return data[:at] + word + data[at + len(word) :]
        case 6:
            return data[:at]
        case 7:
            return data[:first] + data[last:]
        case 8:
            return data[:last] + data[first:]
        case 9:
            return data[:at] + rng.randbytes(rng.randrange(1, 20)) + data[at:]
        case 10:
            return data[:at] + other[_place(other, rng) :]
        case 11:
            return (
                data[:first]
                + rng.choice((b"\0", b"\xff", b" ", b"9")) * (last - first)
                + data[last:]
            )
        case 12:
            return rng.choice(
                (b"", b"\0", data + b"\0" * 8, data + data, other, b"\xef\xbb\xbf" + data)
            )
    return data + extreme_word(rng)


def odd_text(rng: Random) -> bytes:
    """A field of a table, or a value of a settings file."""
    match rng.randrange(4):
        case 0:
            return str(rng.choice(INTEGERS)).encode()
        case 1:
            return repr(rng.choice(FLOATS)).encode()
        case 2 if rng.random() < 0.1:
            return rng.choice(RAW_JSON)[:4000].encode()
    return rng.choice(TEXTS).encode(errors="surrogatepass")


_FIELD = re.compile(rb"[^,\t\n=\[\]\" ]+")


def mutate_text(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    """Change, move, remove or repeat fields and lines."""
    if rng.random() < 0.2:
        return mutate_bytes(data, rng, other)
    lines = data.splitlines(keepends=True)
    if not lines:
        return odd_text(rng)
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(12):
        case 0 | 1 | 2 | 3 | 4:
            lines[at] = _other_field(lines[at], rng)
        case 5:
            del lines[at]
        case 6:
            lines.insert(to, lines[at])
        case 7:
            lines[at], lines[to] = lines[to], lines[at]
        case 8:
            more = other.splitlines(keepends=True)
            lines.insert(at, rng.choice(more) if more else b"\n")
        case 9:
            mark = rng.choice(
                (b",", b"\t", b";", b'"', b"\n", b"\r", b"\0", b"=", b"[", b"]", b"#")
            )
            where = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:where] + mark + lines[at][where:]
        case 10:
            swapped = rng.choice(
                (
                    (b",", b";"),
                    (b",", b"\t"),
                    (b"\n", b"\r"),
                    (b"\n", b""),
                    (b",", b""),
                    (b",", b",,"),
                )
            )
            return data.replace(*swapped)
        case 11:
            text = data.decode("utf-8", errors="replace")
            return text.encode(
                rng.choice(("utf-16", "utf-32", "latin1", "utf-8-sig")), errors="replace"
            )
    return b"".join(lines)


def _other_field(line: bytes, rng: Random) -> bytes:
    fields = list(_FIELD.finditer(line))
    if not fields:
        return odd_text(rng) + line
    field = rng.choice(fields)
    new = odd_text(rng)
    if rng.random() < 0.3:
        new = rng.choice(fields).group()
    elif rng.random() < 0.2:
        new = b'"' + new + b'"'
    return line[: field.start()] + new + line[field.end() :]
