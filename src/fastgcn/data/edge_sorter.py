"""Edges in any order to the clean CSR rows of a store, in bounded memory."""

from contextlib import ExitStack

import numpy as np

from fastgcn import checks
from fastgcn.csr import Cleaning, index_dtype
from fastgcn.data.key_spool import NO_VALUES, KeySpool
from fastgcn.data.store import StoreWriter
from fastgcn.errors import InputError
from fastgcn.kernels import edges as kernels
from fastgcn.progress import progress
from fastgcn.types import FloatArray, IntArray

# A key has two node ids and a flag in the 63 bits of a positive int64.
MAX_NODES = 1 << 31

# Edges turned into keys together: few enough that the keys stay near the processor.
_CHUNK = 1 << 17


class EdgeSorter:
    """Takes edges in any order and writes `indptr`, `indices` and `weights` into a store.

    The rows are those that `fastgcn.csr.csr_from_edges` makes of the same edges; weights of
    an edge listed several times add up in the order they came. Memory stays near `memory`
    bytes plus 8 a node; what does not fit waits in files in the writer's folder.

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
        """Take edges: ids 0..n-1, and weights (none negative) where the sorter is weighted."""
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
        """Write the arrays; returns what was dropped and merged."""
        indptr = np.zeros(self._n + 1, np.int64)
        duplicates = self._write_rows(indptr[1:])
        np.cumsum(indptr, out=indptr)
        self._writer.put("indptr", indptr)
        return self._dropped + Cleaning(duplicates=duplicates)

    def _write_rows(self, degrees: IntArray) -> int:
        """Write `indices` and `weights`, add to `degrees` (n,); the number of duplicates."""
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
    """Turns sorted keys, which come in pieces, into the columns and weights of CSR rows."""

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
        """The edge that was still open, if there is one."""
        end = np.array([kernels.END_KEY])
        return self.merge(end, np.zeros(int(self._weighted), np.float32))


def _finite(weights: FloatArray) -> FloatArray:
    if not np.isfinite(weights).all():
        raise InputError(
            "the weights of an edge that is listed more than once add up to more than a "
            f"float32 holds ({np.finfo(np.float32).max:.3g}); scale the weights down"
        )
    return weights
