"""ÂX on disk: computed once for a graph, checked whenever it is used, continued after a kill.

A folder holds `rows.bin`, the bits of all rows in order, and `rows.json`, which describes them
and has a checksum for each complete block of rows. Rows are written before their checksums, and
the list of checksums is replaced atomically, so that rows which a kill left incomplete are never
used. One process at a time writes to a folder; others that need the same rows wait for it.
"""

import hashlib
import json
import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from fastgcn.arrays import AnyArray, IntArray
from fastgcn.data.layout import fingerprint
from fastgcn.features.encoded import Bits, BitsInFile, BitsInMemory, EncodedStore, encoded, units
from fastgcn.features.propagate import propagated
from fastgcn.features.store import NodeFeatures
from fastgcn.files import read_json
from fastgcn.graph.adjacency import AdjacencyRows
from fastgcn.graph.edges import Rows
from fastgcn.graph.graph import Graph
from fastgcn.locks import take_descriptor
from fastgcn.progress import note, progress
from fastgcn.schema import digest, list_of, optional
from fastgcn.scratch import Scratch, make_room
from fastgcn.writing import explained, write_text

_BLOCK_BYTES = 1 << 24  # of rows with one checksum
_FOLDER = "inputs"


class InputBlocks:
    """Rows of ÂX (n, F), or of [ÂX | X] (n, 2F) with `beside`, as bits of one precision."""

    def __init__(
        self, source: AdjacencyRows, features: NodeFeatures, dtype: str, *, beside: bool = False
    ) -> None:
        self.source, self.features, self.dtype, self.beside = source, features, dtype, beside
        self.n = source.n
        self.units = units(features.width * (2 if beside else 1), dtype)
        self.rows_a_block = max(1, _BLOCK_BYTES // max(2 * self.units, 1))

    @property
    def n_bytes(self) -> int:
        return 2 * self.n * self.units

    def blocks(
        self, ranges: list[tuple[int, int]], chunk_bytes: int
    ) -> Iterator[tuple[int, AnyArray]]:
        """The rows in these ranges, block by block: the number of the first row, and the rows'
        bits (k, units).

        Each range begins where a block begins; about `chunk_bytes` are computed together.
        """
        step = self.rows_a_block
        for first, mixed in propagated(self.source, self.features, ranges, chunk_bytes, step):
            for start in range(0, len(mixed), step):
                some = mixed[start : start + step]
                if self.beside:
                    own = self.features.between(first + start, first + start + len(some))
                    some = np.concatenate([some, own.numpy()], axis=1)
                    self.features.forget()
                yield first + start, encoded(some, self.dtype)


def kept_inputs(
    graph: Graph,
    key: Mapping[str, str],
    rows: InputBlocks,
    folder: Path | None,
    chunk_bytes: int,
) -> EncodedStore:
    """The rows in a file; missing rows are computed, about `chunk_bytes` at a time.

    The file lies beside the store that the features are mapped from or, if that is not
    writable, in the run's `folder`; later runs find it by its `key`. Without either, it is an
    unnamed file in the working directory.
    """
    place = _place(graph, folder)
    if place is None:
        return scratch_inputs(rows, Path.cwd(), chunk_bytes)
    name = json.dumps([dict(key), rows.dtype, rows.beside])
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return _KeptInputs(place / _FOLDER / digest, rows).completed(chunk_bytes)


def first_layer_rows(
    graph: Graph,
    source: AdjacencyRows,
    features: NodeFeatures,
    nodes: IntArray,
    *,
    normalization: str,
    dtype: str,
    folder: Path | None,
    room: int,
) -> EncodedStore:
    """The rows of ÂX of `nodes`, ascending, in a file.

    The file is kept for later runs only if it is larger than `room`, the bytes of memory left.
    """
    every = len(nodes) == source.n
    chosen = source if every else _Selected(source, nodes)
    rows = InputBlocks(chosen, features, dtype)
    if rows.n_bytes <= room:
        return scratch_inputs(rows, folder or Path.cwd(), 0)
    key = inputs_key(graph, normalization, features, None if every else nodes)
    return kept_inputs(graph, key, rows, folder, room)


@dataclass(frozen=True, slots=True)
class _Selected:
    """Some rows of Â under new row numbers, columns as they were."""

    source: AdjacencyRows
    nodes: IntArray

    @property
    def n(self) -> int:
        return len(self.nodes)

    def rows(self, ids: IntArray) -> Rows:
        return self.source.rows(self.nodes[ids])


def scratch_inputs(rows: InputBlocks, folder: Path | None, chunk_bytes: int) -> EncodedStore:
    """The rows in memory, or with a `folder` in an unnamed file there."""
    scratch = Scratch((rows.n, rows.units), np.int16, folder)
    for start, block in rows.blocks([(0, rows.n)], chunk_bytes):
        scratch.put(start, block)
    bits: Bits = BitsInMemory(scratch.array)
    if scratch.descriptor is not None:
        bits = BitsInFile(scratch.descriptor, (rows.n, rows.units), scratch)
    return EncodedStore(bits, rows.dtype)


def inputs_key(
    graph: Graph, normalization: str, features: NodeFeatures, rows: IntArray | None = None
) -> dict[str, str]:
    """Everything that ÂX depends on: the graph, the nodes that `features` are of, both scalings,
    and which `rows` of ÂX are requested (None: all).
    """
    return {
        "graph": fingerprint(graph),
        "nodes": _digest(features.nodes),
        "normalization": normalization,
        "scaling": features.scaling,
        "statistics": _digest(*(features.statistics or ())),
        "rows": _digest(rows),
    }


def _digest(*arrays: AnyArray | None) -> str:
    """A name for the content of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _place(graph: Graph, folder: Path | None) -> Path | None:
    mapped = getattr(graph.features, "filename", None)
    store = None if mapped is None else Path(mapped).parent
    return store if store is not None and os.access(store, os.W_OK) else folder


class _KeptInputs:
    """The two files of one ÂX."""

    def __init__(self, folder: Path, rows: InputBlocks) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows, self.data, self.list = rows, folder / "rows.bin", folder / "rows.json"
        self.row_bytes = 2 * rows.units
        self.step = rows.rows_a_block
        self.about = {"rows": rows.n, "row_bytes": self.row_bytes, "rows_a_block": self.step}

    def completed(self, chunk_bytes: int) -> EncodedStore:
        """All rows, after computing those that are missing or incomplete."""
        size = self.rows.n * self.row_bytes
        with self.data.open("a+b") as file:
            _wait_for_others(file)
            if file.seek(0, os.SEEK_END) != size:
                file.truncate(0)
                make_room(file, size, self.data.parent, "ÂX")
            sums = self._checked()
            missing = [block for block, checksum in enumerate(sums) if checksum is None]
            if missing:
                self._fill(missing, sums, chunk_bytes)
        descriptor = os.open(self.data, os.O_RDONLY)
        weakref.finalize(self, os.close, descriptor)
        shape = self.rows.n, self.rows.units
        return EncodedStore(BitsInFile(descriptor, shape, self), self.rows.dtype)

    def _checked(self) -> list[str | None]:
        """The checksum of every block, None for missing or damaged blocks."""
        sums = self._listed()
        there = [block for block, checksum in enumerate(sums) if checksum is not None]
        with (
            self.data.open("rb") as file,
            progress("Checking ÂX", len(there), "blocks") as advance,
        ):
            for block in there:
                file.seek(block * self.step * self.row_bytes)
                if hashlib.sha256(file.read(self.step * self.row_bytes)).hexdigest() != sums[block]:
                    sums[block] = None
                advance(1)
        return sums

    def _listed(self) -> list[str | None]:
        blocks = -(-self.rows.n // self.step)
        try:
            found = read_json(self.list)
            list_of(optional(digest), shortest=blocks, longest=blocks)(found["sha256"], "sha256")
            if found["about"] == self.about:
                return cast(list[str | None], found["sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is no usable file yet: all rows are computed
        return [None] * blocks

    def _fill(self, missing: list[int], sums: list[str | None], chunk_bytes: int) -> None:
        ranges = _joined(np.array(missing), self.step, self.rows.n)
        with explained(self.data), self.data.open("r+b") as file:
            for start, bits in self.rows.blocks(ranges, chunk_bytes):
                file.seek(start * self.row_bytes)
                file.write(bits.data)
                file.flush()
                sums[start // self.step] = hashlib.sha256(bits.data).hexdigest()
                found = json.dumps({"about": self.about, "sha256": sums})
                write_text(self.list, found, durable=False)  # its checksums show what is damaged


def _wait_for_others(file: IO[bytes]) -> None:
    """Wait until no other process writes to the file; closing it lets the next one go on."""
    if not take_descriptor(file.fileno()):
        note(f"Waiting for another process that computes {file.name}")
        take_descriptor(file.fileno(), wait=True)


def _joined(blocks: IntArray, step: int, n: int) -> list[tuple[int, int]]:
    """Ranges of rows that cover these blocks; consecutive blocks are one range."""
    ends = np.flatnonzero(np.diff(blocks) > 1)
    firsts = blocks[np.concatenate([[0], ends + 1])]
    lasts = blocks[np.concatenate([ends, [len(blocks) - 1]])]
    return [
        (int(a) * step, min((int(b) + 1) * step, n)) for a, b in zip(firsts, lasts, strict=True)
    ]
