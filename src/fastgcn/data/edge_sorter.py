"""Edges in any order to the clean CSR rows of a store, in bounded memory."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np

from fastgcn import checks
from fastgcn.csr import Cleaning, index_dtype
from fastgcn.data.store import StoreWriter
from fastgcn.errors import InputError
from fastgcn.kernels import edges as kernels
from fastgcn.progress import progress
from fastgcn.types import FloatArray, IntArray

# A key has two node ids and a flag in the 63 bits of a positive int64.
MAX_NODES = 1 << 31

# Edges turned into keys together: few enough that the keys stay near the processor.
_CHUNK = 1 << 18

_BUCKET_BITS = 8
_NO_VALUES = np.empty(0, np.float32)

Piece = tuple[IntArray, FloatArray]  # keys, and a value a key or none at all


class EdgeSorter:
    """Takes edges in any order and writes `indptr`, `indices` and `weights` into a store.

    The rows are those that `fastgcn.csr.csr_from_edges` makes of the same edges (weights of
    an edge listed several times add up in the order they came). Memory stays near `memory`
    bytes plus 8 a node; what does not fit waits in a file in the writer's folder.
    """

    def __init__(
        self, writer: StoreWriter, n: int, *, directed: bool, weighted: bool, memory: int
    ) -> None:
        if n > MAX_NODES:
            raise InputError(f"a graph must have at most {MAX_NODES:,} nodes, got {n:,}")
        self._writer, self._n = writer, n
        self._directed, self._weighted = directed, weighted
        self._bits = (n - 1).bit_length()
        self._spool = _Spool(writer.folder, 2 * self._bits + 1, memory, weighted=weighted)
        self._dropped = Cleaning()
        chunk = max(1, min(_CHUNK, memory // 256))
        self._keys = np.empty(2 * chunk, np.int64)
        self._values = np.empty(2 * chunk if weighted else 0, np.float32)

    def add(self, source: IntArray, target: IntArray, weights: FloatArray | None = None) -> None:
        """Take edges: ids 0..n-1, and positive or zero weights where the sorter is weighted."""
        assert (weights is not None) == self._weighted
        source, target, checked = checks.edge_arrays(source, target, weights, self._n)
        values = _NO_VALUES if checked is None else checked
        step = len(self._keys) // 2
        for start in range(0, len(source), step):
            part = slice(start, start + step)
            filled, loops, zeros = kernels.edge_keys(
                source[part],
                target[part],
                values[part],
                self._bits,
                self._directed,
                self._keys,
                self._values,
            )
            self._dropped += Cleaning(self_loops=loops, zero_weights=zeros)
            self._spool.add(self._keys[:filled], self._values[:filled])

    def finish(self) -> Cleaning:
        """Write the arrays; what was dropped and merged."""
        indptr = np.zeros(self._n + 1, np.int64)
        duplicates = self._write_rows(indptr[1:])
        np.cumsum(indptr, out=indptr)
        self._writer.put("indptr", indptr)
        return self._dropped + Cleaning(duplicates=duplicates)

    def _write_rows(self, degrees: IntArray) -> int:
        """Write `indices` and `weights`, count into `degrees` (n,); the number of duplicates."""
        duplicates = 0
        state, sums = np.array([-1, 0]), np.zeros(2, np.float32)
        dtype = index_dtype(self._n)
        with ExitStack() as stack:
            indices = stack.enter_context(self._writer.stream("indices", dtype))
            if self._weighted:
                weights = stack.enter_context(self._writer.stream("weights", np.float32))
            advance = stack.enter_context(progress("Sorting edges", self._spool.size, "entries"))
            for keys, values in self._spool.drain():
                columns = np.empty(len(keys) + 1, dtype)
                merged = np.empty(len(values) + 1, np.float32)
                written, twice = kernels.merge_sorted(
                    keys, values, self._bits, state, sums, degrees, columns, merged
                )
                duplicates += twice
                indices.write(columns[:written])
                if self._weighted:
                    weights.write(_finite(merged[:written]))
                advance(len(keys))
            last = int(state[kernels.OPEN])
            if last >= 0:
                degrees[last >> self._bits] += 1
                indices.write(np.array([last & ((1 << self._bits) - 1)], dtype))
                if self._weighted:
                    weights.write(_finite(sums.max(keepdims=True)))
        return duplicates


def _finite(weights: FloatArray) -> FloatArray:
    if not np.isfinite(weights).all():
        raise InputError(
            "the weights of an edge that is listed more than once add up to more than a "
            f"float32 holds ({np.finfo(np.float32).max:.3g}); scale the weights down"
        )
    return weights


class _Spool:
    """Sorts int64 keys of `bits` bits, stable, each with a float32 value where `weighted`.

    Keys are partitioned by their highest bits into buckets as they come. A bucket is sorted
    when its turn comes, or partitioned further by the next bits where it is too large. What
    does not fit into `memory` bytes goes to a file, which the system deletes with its last
    handle, so that even a killed process leaves none.
    """

    def __init__(self, folder: Path, bits: int, memory: int, *, weighted: bool) -> None:
        self._folder, self._memory, self._weighted = folder, memory, weighted
        self._entry = 12 if weighted else 8
        self._shift = max(bits - _BUCKET_BITS, 0)  # the low bits, which buckets leave to sort
        self._n_buckets = 1 << (bits - self._shift)
        # Up to a half of the memory waits in runs; sorting needs a bucket three times.
        self._most_held = memory // 2
        self._most_sorted = max(1, memory // (8 * self._entry))
        capacity = max(1, min(4 * _CHUNK, memory // (16 * self._entry)))
        self._keys = np.empty(capacity, np.int64)
        self._values = np.empty(capacity if weighted else 0, np.float32)
        self._filled = 0
        self._runs: list[_Run] = []
        self._spilled: list[IntArray] = []  # bucket offsets in the file, a spill each
        self._files: list[IO[bytes]] = []  # keys, and values where there are any
        self.size = 0

    def add(self, keys: IntArray, values: FloatArray) -> None:
        taken = 0
        while taken < len(keys):
            count = min(len(keys) - taken, len(self._keys) - self._filled)
            place = slice(self._filled, self._filled + count)
            self._keys[place] = keys[taken : taken + count]
            if self._weighted:
                self._values[place] = values[taken : taken + count]
            taken += count
            self._filled += count
            if self._filled == len(self._keys):
                self._partition()
        self.size += len(keys)

    def drain(self) -> Iterator[Piece]:
        """The keys in ascending order, piece by piece."""
        self._partition()
        sizes = np.zeros(self._n_buckets, np.int64)
        for offsets in (*self._spilled, *(run.offsets for run in self._runs)):
            sizes += np.diff(offsets)
        for bucket in np.flatnonzero(sizes).tolist():
            if sizes[bucket] <= self._most_sorted:
                keys, values = zip(*self._bucket(bucket), strict=True)
                yield kernels.sort_keys(np.concatenate(keys), np.concatenate(values), self._shift)
            elif self._shift == 0:  # one key over and over
                yield from self._bucket(bucket)
            else:
                deeper = _Spool(
                    self._folder, self._shift, self._memory // 4, weighted=self._weighted
                )
                for piece in self._bucket(bucket):
                    deeper.add(*piece)
                yield from deeper.drain()
        for file in self._files:
            file.close()

    def _partition(self) -> None:
        keys, values = self._keys[: self._filled], self._values[: self._filled]
        run = _Run(np.empty_like(keys), np.empty_like(values), _NO_OFFSETS)
        ...
