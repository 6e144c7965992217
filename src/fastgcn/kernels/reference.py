"""What the compiled kernels compute, in plain numpy and scipy: the oracle of their tests."""

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray


def draw_folded(cumulative: FloatArray, uniforms: FloatArray) -> dict[int, int]:
    """How often each position is drawn by inverting the running sums."""
    total = cumulative[-1]
    points = np.minimum(uniforms * total, np.nextafter(total, 0))
    drawn, counts = np.unique(np.searchsorted(cumulative, points, side="right"), return_counts=True)
    return dict(zip(drawn.tolist(), counts.tolist(), strict=True))


def product(matrix: csr_array, other: FloatArray | csr_array) -> FloatArray:
    """Sparse times sparse or dense, dense."""
    result = matrix @ other
    return np.asarray(result.toarray() if isinstance(result, csr_array) else result)


def rows_with_loops(matrix: csr_array, nodes: IntArray) -> csr_array:
    """The rows `nodes` of a matrix without loops, each with its own column of value one."""
    loops = csr_array(
        (np.ones(len(nodes)), (np.arange(len(nodes)), nodes)), (len(nodes), matrix.shape[1])
    )
    return csr_array(matrix[nodes] + loops)


def scaled_rows(matrix: csr_array, own: FloatArray, others: FloatArray | None) -> FloatArray:
    """diag(own) · matrix · diag(others), dense."""
    rows = own[:, None] * matrix.toarray()
    return np.asarray(rows if others is None else rows * others)
