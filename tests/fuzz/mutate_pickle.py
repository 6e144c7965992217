"""Mutations of pickles: of single opcodes, their arguments, and the arrays they hold."""

import pickletools
import struct
from random import Random

from tests.fuzz.mutate_bytes import extreme_word, mutate_bytes
from tests.fuzz.values import INTEGERS

# Each leaves one value on the stack.
_VALUES = (
    *(b"N", b"\x88", b"\x89", b"K\x00", b"K\x01", b"J\xff\xff\xff\xff", b"J\xff\xff\xff\x7f", b")"),
    *(
        b"]",
        b"}",
        b"\x8f",
        b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x8a\x09" + b"\xff" * 8 + b"\0",
    ),
    *(
        b"G\x7f\xf8\0\0\0\0\0\0",
        b"G\x7f\xf0\0\0\0\0\0\0",
        b"U\x01a",
        b"U\x00",
        b"C\x01\xff",
        b"I01\n",
    ),
    *(
        b"L" + b"9" * 5000 + b"L\n",
        b"S'a'\n",
        b"V\\ud800\n",
        b"F1e999\n",
        b"\x8c\x02<i",
        b"h\x00",
        b"h\xff",
    ),
    *(
        b"cnumpy\nndarray\n",
        b"cnumpy\ndtype\n",
        b"c__builtin__\nlist\n",
        b"ccollections\ndefaultdict\n",
    ),
    *(
        b"cscipy.sparse.csr\ncsr_matrix\n",
        b"c_codecs\nencode\n",
        b"cos\nsystem\n",
        b"cbuiltins\neval\n",
    ),
    *(
        b"cnumpy.core.multiarray\n_reconstruct\n",
        b"c__builtin__\nbytes\n",
        b"cnumpy\nndarray.tofile\n",
    ),
    b"cnumpy.core.multiarray\n_reconstruct\n)R",
    b"cscipy.sparse.csr\ncsr_matrix\n)\x81",
    b"c_codecs\nencode\nU\x02ab\x85R",
    b"cnumpy\ndtype\nU\x02f4\x85R",
)

# Each works on what lies on the stack.
_ACTIONS = (
    *(
        b"0",
        b"1",
        b"2",
        b"(",
        b"t",
        b"l",
        b"d",
        b"a",
        b"e",
        b"s",
        b"u",
        b"R",
        b"b",
        b"\x81",
        b"o",
        b"Q",
    ),
    *(
        b"\x85",
        b"\x86",
        b"\x87",
        b"q\x00",
        b"q\xff",
        b"r\xff\xff\xff\x7f",
        b"p9999999\n",
        b"h\x01",
        b".",
    ),
    *(
        b"\x94",
        b"\x90",
        b"\x91",
        b"\x92",
        b"\x93",
        b"\x97",
        b"\x98",
        b"\x95" + b"\xff" * 8,
        b"\x80\x05",
    ),
)


def _bomb(rng: Random) -> bytes:
    """A value of few bytes that is deep, or that is large when it is followed."""
    depth = rng.choice((10, 40, 200, 1100, 30_000))
    match rng.randrange(5):
        case 0:
            return b")" + b"\x85" * depth
        case 1:
            return b"}" + b")" + b"\x85" * depth + b"Ns"
        case 2:
            return b"]" * depth + b"a" * (depth - 1)
        case 3:
            return b"K\x01" + b"2\x86" * min(depth, 40)
    # Lists that hold the one before twice.
    return b"]q\x07" + b"](h\x07h\x07eq\x07" * min(depth, 60)


def mutate_pickle(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    if rng.random() < 0.2:
        return mutate_bytes(data, rng, other)
    pieces = _pieces(data)
    if len(pieces) < 2:
        return mutate_bytes(data, rng, other)
    at, to = rng.randrange(len(pieces)), rng.randrange(len(pieces))
    match rng.randrange(12):
        case 0:
            del pieces[at]
        case 1:
            pieces.insert(to, pieces[at])
        case 2:
            pieces[at], pieces[to] = pieces[to], pieces[at]
        case 3:
            pieces.insert(at, rng.choice(_VALUES))
        case 4:
            pieces[at] = rng.choice(_VALUES)
        case 5:
            pieces.insert(at, rng.choice(_ACTIONS))
        case 6:
            pieces[at] = _bomb(rng) if rng.random() < 0.5 else rng.choice(_ACTIONS)
        case 7:
            more = _pieces(other)
            first = rng.randrange(len(more) + 1)
            pieces[at : at + 3] = more[first : first + rng.randrange(1, 8)]
        case 8:
            pieces[at] = _number(rng)
        case _:
            longest = sorted(range(len(pieces)), key=lambda i: -len(pieces[i]))[:6]
            chosen = rng.choice(longest)
            pieces[chosen] = _other_content(pieces[chosen], rng)
    return b"".join(pieces)


def _number(rng: Random) -> bytes:
    value = rng.choice(INTEGERS)
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(17, "little", signed=True)
    return b"\x8a\x11" + raw


def _other_content(piece: bytes, rng: Random) -> bytes:
    """Change words of an array's bytes; its length stays right."""
    if len(piece) < 9:
        return mutate_bytes(piece, rng)
    word = extreme_word(rng)
    room = (len(piece) - 5) // len(word)
    at = 5 + len(word) * rng.choice((0, max(room - 1, 0), rng.randrange(max(room, 1))))
    return piece[:at] + word + piece[at + len(word) :]


def _pieces(data: bytes) -> list[bytes]:
    """The bytes of each opcode with its argument."""
    starts: list[int] = []
    try:
        starts.extend(position or 0 for _, _, position in pickletools.genops(data))
    except Exception:  # the rest is no pickle
        starts = starts or [0]
    return [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
