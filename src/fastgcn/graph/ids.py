"""The user's own node ids: as text in one array, and an index that finds them.

A store keeps the order of its ids beside them (`ID_ORDER`), and an id is found by bisection. For
other graphs an index is made when an id is first looked up, and kept: a later look-up takes the
same time however many nodes there are.
"""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from fastgcn.arrays import AnyArray, IntArray
from fastgcn.errors import FormatError
from fastgcn.graph.csr import check_all, damaged, file_of
from fastgcn.npy import map_npy

# The file of a store that has the order of its ids, as `order_of` gives it.
ID_ORDER = "node_ids.order"


class TextIds(Sequence[str]):
    """String ids as one UTF-8 text and (n+1,) offsets, so that they can be memory-mapped.

    >>> ids = TextIds.pack(["paper-1", "Zürich"])
    >>> ids[1], len(ids)
    ('Zürich', 2)
    """

    def __init__(self, text: AnyArray, offsets: IntArray) -> None:
        self.text, self.offsets = text, offsets

    @classmethod
    def pack(cls, ids: Sequence[Any]) -> "TextIds":
        encoded = [str(i).encode() for i in ids]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"id {index} of {len(self)}")
        index = int(index) % len(self)
        encoded = self.text[self.offsets[index] : self.offsets[index + 1]].tobytes()
        try:
            return encoded.decode()
        except UnicodeDecodeError:
            raise damaged(self.text, f"the id of node {index} is not UTF-8 text") from None


# (k,) node numbers of texts, -1 for those that are no id.
_Find = Callable[[Sequence[str]], IntArray]

_COMPARED = 1000  # new ids that are compared with known ones

_DIGITS = re.compile(r"[0-9]{1,19}")
# Only numbers as they are printed: "007" is not the id 7.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")

# Indexes of the graphs used last, each with its ids, so that no other ids can take their place.
_MOST = 4
_kept: list[tuple[Sequence[Any], _Find]] = []
_lock = threading.Lock()


def find_ids(ids: Sequence[Any] | None, n: int, words: Sequence[str]) -> IntArray:
    """(k,) int64: the numbers of the nodes whose ids, written as text, are `words`; -1 for none.

    `ids` None stands for 0..n-1.

    >>> find_ids(["a", "b", "c"], 3, ["c", "x"]).tolist()
    [2, -1]
    """
    if ids is None:
        found = [int(word) if _DIGITS.fullmatch(word) else -1 for word in words]
        return np.array([i if i < n else -1 for i in found], np.int64)
    with _lock:
        place = next((i for i, (kept, _) in enumerate(_kept) if kept is ids), None)
        entry = (ids, _index(ids)) if place is None else _kept.pop(place)
        _kept.insert(0, entry)
        del _kept[_MOST:]
    return entry[1](words)


def written_otherwise(ids: Sequence[Any] | None, n: int, unknown: Any) -> str:
    """A sentence if `unknown` is written in another way among the ids: 27 and 0027, a and A.

    >>> written_otherwise(["0027", "b"], 2, 27)
    "; '0027' is known, and not '27': write ids alike"
    """
    found = _other_spellings(ids, n, [unknown])
    return f"; {found[0][1]!r} is known, and not {found[0][0]!r}: write ids alike" if found else ""


def maybe_known(ids: Sequence[Any] | None, n: int, new: Sequence[Any]) -> str:
    """A sentence if one of the `new` ids is perhaps a known one, written in another way.

    >>> maybe_known(["0027", "b"], 2, [28, 27])
    "'27' counts as a new node, but may be '0027', which is known: write ids alike if it is"
    """
    found = _other_spellings(ids, n, new[:_COMPARED])
    if not found:
        return ""
    word, known = found[0]
    return (
        f"{word!r} counts as a new node, but may be {known!r}, which is known: write ids alike if "
        "it is"
    )


def _other_spellings(
    ids: Sequence[Any] | None, n: int, words: Sequence[Any]
) -> list[tuple[str, str]]:
    """Words, each with an id that may be the same."""
    ways = [(str(word), way) for word in words for way in _ways(str(word))]
    found = find_ids(ids, n, [way for _, way in ways])
    return [pair for pair, place in zip(ways, found.tolist(), strict=True) if place >= 0]


def _ways(word: str) -> list[str]:
    """Other ways to write an id: 27 and 0027, a and A."""
    plain = word.strip().removesuffix(".0")
    bare = plain.lstrip("0") or "0"
    ways = [plain, plain.lower(), plain.upper(), *(bare.zfill(width) for width in range(1, 20))]
    return [way for way in ways if way != word]


def order_of(ids: Sequence[Any]) -> IntArray:
    """(n,) int64: the nodes sorted by their ids if these are integers, or by a hash of the text.

    >>> order_of(np.array([30, 10, 20])).tolist()
    [1, 2, 0]
    """
    if not isinstance(ids, TextIds):
        return np.argsort(np.asarray(ids), kind="stable")
    from fastgcn.kernels import edges as kernels  # loads numba

    codes = np.empty(len(ids), np.int64)
    kernels.hash_texts(ids.text, ids.offsets, codes)
    return np.argsort(codes, kind="stable")


def _stored_order(ids: TextIds | IntArray) -> IntArray | None:
    """The order that the store of these ids has kept; None where there is none."""
    file = file_of(ids.text if isinstance(ids, TextIds) else ids)
    path = None if file is None else file.with_name(ID_ORDER)
    if path is None or not path.exists():
        return None
    try:
        order: IntArray = map_npy(path, strict=True)
    except ValueError as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    if order.shape != (len(ids),) or order.dtype != np.int64:
        return None  # of all ids of the store, and these are a part of them
    check_all(order, len(ids), what="node")
    return order


def _index(ids: Sequence[Any]) -> _Find:
    if isinstance(ids, TextIds):
        order = _stored_order(ids)
        return _text_index(ids) if order is None else _ordered_text(ids, order)
    if isinstance(ids, np.ndarray) and ids.dtype.kind == "i":
        order = _stored_order(ids)
        return _integer_index(ids) if order is None else _ordered_integers(ids, order)
    places = {str(own): i for i, own in enumerate(ids)}
    return lambda words: np.array([places.get(word, -1) for word in words], np.int64)


def _text_index(ids: TextIds) -> _Find:
    from fastgcn.kernels import edges as kernels  # loads numba

    table = kernels.hash_table(len(ids))
    kernels.insert_text(ids.text, ids.offsets, table)

    def find(words: Sequence[str]) -> IntArray:
        asked = TextIds.pack(words)
        found = np.full(len(words), -1, np.int64)
        kernels.find_text(asked.text, asked.offsets, ids.text, ids.offsets, table, found)
        return found

    return find


def _ordered_text(ids: TextIds, order: IntArray) -> _Find:
    from fastgcn.kernels import edges as kernels  # loads numba

    def find(words: Sequence[str]) -> IntArray:
        asked = TextIds.pack(words)
        found = np.full(len(words), -1, np.int64)
        kernels.find_ordered(asked.text, asked.offsets, ids.text, ids.offsets, order, found)
        return found

    return find


def _integer_index(ids: IntArray) -> _Find:
    from fastgcn.kernels import edges as kernels  # loads numba

    table = kernels.hash_table(len(ids))
    kernels.insert_integers(ids, table)

    def find(asked: IntArray) -> IntArray:
        found = np.empty(len(asked), np.int64)
        kernels.find_integers(asked, table, found)
        return found

    return _by_number(find)


def _ordered_integers(ids: IntArray, order: IntArray) -> _Find:
    def find(asked: IntArray) -> IntArray:
        places = np.searchsorted(ids, asked, sorter=order)
        found = order[np.minimum(places, len(ids) - 1)]
        return np.where(ids[found] == asked, found, -1)

    return _by_number(find)


def _by_number(find: Callable[[IntArray], IntArray]) -> _Find:
    """Look up the words that are integers as they are printed; no other word is an id."""

    def find_words(words: Sequence[str]) -> IntArray:
        numbers = [int(word) if _INTEGER.fullmatch(word) else None for word in words]
        known = [i for i, x in enumerate(numbers) if x is not None and -(2**63) <= x < 2**63]
        found = np.full(len(words), -1, np.int64)
        found[known] = find(np.array([numbers[i] for i in known], np.int64))
        return found

    return find_words
