"""Edge lists to clean CSR rows, in memory.

Row `v` of the matrix lists the nodes that `v` points to, A(v, u) = 1 (or a weight) for an
edge v → u: the plain adjacency matrix of scipy and networkx, and the A of eq. 1, so that
`A @ H` describes a node by what it points to. An undirected graph stores both directions.

What "clean" means, here and in every reader:

* rows are sorted by column and hold no column twice;
* the same edge given twice in the same direction is one edge; weights add up, a graph
  without weights stays without;
* in an undirected graph, an edge listed in both directions is one edge, with the larger of
  its two weights, so that a table that lists (a, b, w) and (b, a, w) means w;
* self loops are dropped: the normalisation adds its own;
* an edge of weight zero is no edge, and is dropped.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from fastgcn.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What was removed on the way in, in edges as they were listed."""

    self_loops: int = 0
    duplicates: int = 0  # the same edge again, in the same direction
    zero_weights: int = 0

    def __add__(self, other: "Cleaning") -> "Cleaning":
        return Cleaning(
            self.self_loops + other.self_loops,
            self.duplicates + other.duplicates,
            self.zero_weights + other.zero_weights,
        )


@dataclass(frozen=True, slots=True)
class CSR:
    """`indptr` (n+1,) int64, `indices` (m,) int32 or int64, `weights` (m,) float32 or None."""

    indptr: IntArray
    indices: IntArray
    weights: FloatArray | None


def index_dtype(n: int) -> type[np.signedinteger]:
    """int32 where node ids fit in it: half the memory traffic of int64."""
    return np.int32 if n <= np.iinfo(np.int32).max else np.int64


def csr_from_edges(
    source: IntArray,
    target: IntArray,
    weights: FloatArray | None,
    n: int,
    *,
    directed: bool,
) -> tuple[CSR, Cleaning]:
    """Clean CSR of an edge list whose ids are already 0..n-1."""
    loops = source == target
    zeros = np.zeros(0, np.bool_) if weights is None else (weights == 0) & ~loops
    dropped = Cleaning(int(np.count_nonzero(loops)), 0, int(np.count_nonzero(zeros)))
    if dropped != Cleaning():
        keep = ~loops if weights is None else ~(loops | zeros)
        source, target = source[keep], target[keep]
        weights = None if weights is None else weights[keep]
    # Counting needs a value an edge even where the graph has no weights; int32 counts cannot
    # overflow before an edge has been listed two thousand million times.
    values = np.ones(len(source), dtype=np.int32) if weights is None else weights
    matrix = coo_array((values, (source, target)), shape=(n, n)).tocsr()
    dropped += Cleaning(duplicates=len(source) - matrix.nnz)
    if not directed:
        matrix = matrix.maximum(matrix.T.tocsr())
    matrix.sort_indices()
    return CSR(
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(index_dtype(n), copy=False),
        None if weights is None else matrix.data.astype(np.float32, copy=False),
    ), dropped


def clean_csr(csr: CSR) -> tuple[CSR, Cleaning]:
    """The same graph with sorted rows, no column twice, no self loop; `csr` itself if clean.

    The arrays are those of a matrix of n = len(indptr) - 1 rows whose indices are in range.
    """
    n = len(csr.indptr) - 1
    rows = np.repeat(np.arange(n, dtype=csr.indices.dtype), np.diff(csr.indptr))
    ascending = (csr.indices[1:] > csr.indices[:-1]) | (rows[1:] != rows[:-1])
    without_zeros = csr.weights is None or bool(np.all(csr.weights))
    if without_zeros and bool(np.all(ascending)) and not bool(np.any(rows == csr.indices)):
        return csr, Cleaning()
    return csr_from_edges(rows, csr.indices, csr.weights, n, directed=True)


def is_symmetric(csr: CSR) -> bool:
    """Whether every edge of a clean CSR is there in both directions with one weight."""
    n = len(csr.indptr) - 1
    values = np.ones(len(csr.indices), np.int8) if csr.weights is None else csr.weights
    matrix = csr_array((values, csr.indices, csr.indptr), shape=(n, n))
    other = matrix.T.tocsr()  # rows come out sorted: a transpose is a counting sort
    return (
        np.array_equal(matrix.indptr, other.indptr)
        and np.array_equal(matrix.indices, other.indices)
        and np.array_equal(matrix.data, other.data)
    )
