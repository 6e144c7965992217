"""Sorting more edges than fit into memory, into the rows of a store.

DuckDB took 1.9 (Parquet) to 2.4 (CSV) times as long to import 20 M edges; see docs/adr/0005.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.data.store import StoreWriter
from fastgcn.errors import InputError
from fastgcn.graph import checks
from fastgcn.graph.csr import Cleaning, index_dtype
from fastgcn.kernels import edges as kernels
from fastgcn.progress import progress

NO_VALUES = np.empty(0, np.float32)

_BUCKET_BITS = 8

# Keys partitioned together: enough that the keys of one bucket are copied fast.
_BATCH = 1 << 20

Piece = tuple[IntArray, FloatArray]  # keys, and a value for each key or no values at all


@dataclass(frozen=True, slots=True)
class _Run:
    """A batch in bucket order: bucket b is `keys[offsets[b]:offsets[b + 1]]`."""

    keys: IntArray
    values: FloatArray
    offsets: IntArray


class KeySpool:
    """Sorts int64 keys of `bits` bits (stable), each with a float32 value if `valued`.

    `add` partitions keys into buckets by their highest bits. `drain` sorts one
    bucket after the other; a bucket that is too large is partitioned again by the next bits.
    Keys and values that do not fit into about `memory` bytes are kept in two files in
    `folder`, which `drain` deletes at its end.
    """

    def __init__(self, folder: Path, bits: int, memory: int, *, valued: bool) -> None:
        self._folder, self._memory, self._valued = folder, memory, valued
        self._shift = max(bits - _BUCKET_BITS, 0)  # the number of low bits, which are sorted later
        self._n_buckets = 1 << (bits - self._shift)
        # The number of bits distinguishes nested spools.
        self._key_file = folder / f"spool-{bits}.keys"
        self._value_file = folder / f"spool-{bits}.values"
        entry = 12 if valued else 8
        self._most_held = memory // (4 * entry)
        self._most_sorted = max(1, memory // (8 * entry))  # a bucket is in memory three times
        capacity = max(1, min(_BATCH, memory // (16 * entry)))
        self._keys = np.empty(capacity, np.int64)
        self._values = np.empty(capacity if valued else 0, np.float32)
        self._filled = 0
        self._runs: list[_Run] = []
        self._held = 0
        self._spills: list[IntArray] = []  # the bucket offsets in the files, for each spill
        self.size = 0

    def add(self, keys: IntArray, values: FloatArray) -> None:
        """Add keys (and values); they are copied."""
        taken = 0
        while taken < len(keys):
            count = min(len(keys) - taken, len(self._keys) - self._filled)
            place = slice(self._filled, self._filled + count)
            self._keys[place] = keys[taken : taken + count]
            if self._valued:
                self._values[place] = values[taken : taken + count]
            taken += count
            self._filled += count
            if self._filled == len(self._keys):
                self._partition()
        self.size += len(keys)

    def drain(self) -> Iterator[Piece]:
        """All keys in ascending order, in pieces; call it once, after the last `add`."""
        self._partition()
        sizes = np.zeros(self._n_buckets, np.int64)
        for offsets in (*self._spills, *(run.offsets for run in self._runs)):
            sizes += np.diff(offsets)
        for bucket in np.flatnonzero(sizes).tolist():
            if sizes[bucket] <= self._most_sorted:
                keys, values = zip(*self._pieces(bucket), strict=True)
                yield kernels.sort_keys(np.concatenate(keys), np.concatenate(values), self._shift)
            elif self._shift == 0:  # all keys are equal
                yield from self._pieces(bucket)
            else:
                yield from self._split(bucket)
        self._key_file.unlink(missing_ok=True)
        self._value_file.unlink(missing_ok=True)

    def _split(self, bucket: int) -> Iterator[Piece]:
        deeper = KeySpool(self._folder, self._shift, self._memory // 4, valued=self._valued)
        for piece in self._pieces(bucket):
            deeper.add(*piece)
        yield from deeper.drain()

    def _pieces(self, bucket: int) -> Iterator[Piece]:
        """A bucket's keys in the order they were added."""
        for offsets in self._spills:
            for start in range(offsets[bucket], offsets[bucket + 1], self._most_sorted):
                count = min(self._most_sorted, offsets[bucket + 1] - start)
                keys = np.fromfile(self._key_file, np.int64, count, offset=8 * start)
                yield keys, self._read_values(start, count)
        for run in self._runs:
            part = slice(run.offsets[bucket], run.offsets[bucket + 1])
            yield run.keys[part], run.values[part]

    def _read_values(self, start: int, count: int) -> FloatArray:
        if not self._valued:
            return NO_VALUES
        return np.fromfile(self._value_file, np.float32, count, offset=4 * start)

    def _partition(self) -> None:
        """Move the filled part of the buffer to a run in bucket order."""
        keys, values = self._keys[: self._filled], self._values[: self._filled]
        keys_out, values_out = np.empty_like(keys), np.empty_like(values)
        offsets = kernels.partition(
            keys, values, self._shift, self._n_buckets, keys_out, values_out
        )
        self._runs.append(_Run(keys_out, values_out, offsets))
        self._held += self._filled
        self._filled = 0
        if self._held >= self._most_held:
            self._spill()

    def _spill(self) -> None:
        """Move all runs to the files, bucket by bucket; a bucket can then be read in one piece."""
        sizes = sum(np.diff(run.offsets) for run in self._runs)
        start = self._spills[-1][-1] if self._spills else 0
        self._spills.append(start + np.concatenate(([0], np.cumsum(sizes))))
        self._append(self._key_file, [run.keys for run in self._runs])
        if self._valued:
            self._append(self._value_file, [run.values for run in self._runs])
        self._runs.clear()
        self._held = 0

    def _append(self, path: Path, arrays: list[AnyArray]) -> None:
        with path.open("ab") as file:
            for bucket in range(self._n_buckets):
                for array, run in zip(arrays, self._runs, strict=True):
                    file.write(array[run.offsets[bucket] : run.offsets[bucket + 1]].data)


# The 63 bits of a positive int64 hold two node ids and a flag.
MAX_NODES = 1 << 31

# Edges turned into keys together: few enough that the keys stay in the cache.
_CHUNK = 1 << 17


class EdgeSorter:
    """Takes edges in any order and writes `indptr`, `indices` and `weights` into a store.

    The rows are those that `fastgcn.graph.csr.csr_from_edges` makes of the same edges; the
    weights of an edge listed several times add up in the order in which they came. It takes
    about `memory` bytes plus 8 for each node; the rest is kept in files in the writer's folder.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, StoreWriter(f"{folder}/store") as writer:
    ...     sorter = EdgeSorter(writer, 3, directed=False, weighted=False, memory=1 << 20)
    ...     sorter.add(np.array([2, 1, 0, 0]), np.array([1, 2, 1, 0]))
    ...     print(sorter.finish())
    ...     print(np.load(writer.path("indptr")), np.load(writer.path("indices")))
    Cleaning(self_loops=1, duplicates=0, zero_weights=0)
    [0 1 3 4] [1 0 2 1]
    """

    def __init__(
        self, writer: StoreWriter, n: int, *, directed: bool, weighted: bool, memory: int
    ) -> None:
        if n > MAX_NODES:
            raise InputError(f"a graph must have at most {MAX_NODES:,} nodes, got {n:,}")
        self._writer, self._n = writer, n
        self._directed, self._weighted = directed, weighted
        self._bits = (n - 1).bit_length()
        self._spool = KeySpool(writer.folder, 2 * self._bits + 1, memory, valued=weighted)
        self._dropped = Cleaning()
        chunk = max(1, min(_CHUNK, memory // 256))
        self._keys = np.empty(2 * chunk, np.int64)
        self._values = np.empty(2 * chunk if weighted else 0, np.float32)

    def add(self, source: IntArray, target: IntArray, weights: FloatArray | None = None) -> None:
        """Add edges: ids 0..n-1, and weights (none negative) if the sorter is weighted."""
        assert (weights is not None) == self._weighted
        source, target, checked = checks.edge_arrays(source, target, weights, self._n)
        values = NO_VALUES if checked is None else checked
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
        """Write the arrays; returns how many edges were dropped and merged."""
        indptr = np.zeros(self._n + 1, np.int64)
        duplicates = self._write_rows(indptr[1:])
        np.cumsum(indptr, out=indptr)
        self._writer.put("indptr", indptr)
        return self._dropped + Cleaning(duplicates=duplicates)

    def _write_rows(self, degrees: IntArray) -> int:
        """Write `indices` and `weights`, add to `degrees` (n,); returns the count of duplicates."""
        merger = _Merger(self._bits, degrees, weighted=self._weighted)
        with ExitStack() as stack:
            indices = stack.enter_context(self._writer.stream("indices", merger.dtype))
            if self._weighted:
                weights = stack.enter_context(self._writer.stream("weights", np.float32))
            advance = stack.enter_context(progress("Sorting edges", self._spool.size, "entries"))
            for keys, values in self._spool.drain():
                columns, merged = merger.merge(keys, values)
                indices.write(columns)
                if self._weighted:
                    weights.write(merged)
                advance(len(keys))
            columns, merged = merger.close()
            indices.write(columns)
            if self._weighted:
                weights.write(merged)
        return merger.duplicates


class _Merger:
    """Turns pieces of sorted keys into the columns and weights of CSR rows."""

    def __init__(self, bits: int, degrees: IntArray, *, weighted: bool) -> None:
        self._bits, self._degrees, self._weighted = bits, degrees, weighted
        self._state, self._sums = np.array([-1, 0]), np.zeros(2, np.float32)
        self.dtype = index_dtype(len(degrees))
        self.duplicates = 0

    def merge(self, keys: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
        columns = np.empty(len(keys), self.dtype)
        weights = np.empty(len(values), np.float32)
        written, duplicates = kernels.merge_sorted(
            keys, values, self._bits, self._state, self._sums, self._degrees, columns, weights
        )
        self.duplicates += duplicates
        return columns[:written], _finite(weights[:written])

    def close(self) -> tuple[IntArray, FloatArray]:
        """The edge that is still open, if there is one."""
        end = np.array([kernels.END_KEY])
        return self.merge(end, np.zeros(int(self._weighted), np.float32))


def _finite(weights: FloatArray) -> FloatArray:
    if not np.isfinite(weights).all():
        raise InputError(
            "the weights of an edge that is listed more than once add up to more than a "
            f"float32 holds ({np.finfo(np.float32).max:.3g}); scale the weights down"
        )
    return weights
