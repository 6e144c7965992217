"""The checks of `Graph`'s constructor: each returns its argument in canonical form.

Messages name the argument, what was expected, what was given and, if it helps, how to fix it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from fastgcn.arrays import AnyArray, FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.graph.csr import CSR, index_dtype
from fastgcn.graph.sparse import checked

_NO_NODES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Split:
    """Ids of the training, validation and test nodes: int64, disjoint, in any order.

    A node may be in none of them.
    """

    train: IntArray = field(default_factory=_NO_NODES.copy)
    val: IntArray = field(default_factory=_NO_NODES.copy)
    test: IntArray = field(default_factory=_NO_NODES.copy)

    def items(self) -> tuple[tuple[str, IntArray], ...]:
        """The three parts with their names, in the order train, val, test."""
        return ("train", self.train), ("val", self.val), ("test", self.test)


# A large array is searched for NaN in chunks of this size, to bound the temporary.
_CHUNK = 1 << 24


def named(node: int, node_ids: Sequence[Any] | None) -> str:
    """The name of a node in a message: the user's own id, if there is one."""
    if node_ids is None:
        return f"node {node}"
    return f"node {plain(node_ids[node])!r}"


def plain(value: Any) -> Any:
    """A numpy number as a Python number; anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def as_array(values: Any, what: str) -> AnyArray:
    """`values` as an array; `InputError` if they are none."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InputError(f"{what} must be an array of numbers: {error}") from None


def integers(values: Any, what: str) -> IntArray:
    """A 1-D array of integers; floats are accepted if each is a whole number."""
    array = as_array(values, what)
    if array.ndim != 1:
        raise InputError(f"{what} must be one-dimensional, got shape {array.shape}")
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind == "f" and np.array_equal(array, np.trunc(array)):
        _fits_int64(array, what)
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{what} must be integers, got {array.dtype}")
    if array.dtype.kind == "u":
        _fits_int64(array, what)
    if array.dtype.kind == "u" or array.dtype.itemsize < 4:
        return array.astype(np.int64)
    return array


def _fits_int64(array: AnyArray, what: str) -> None:
    """Check that a conversion to int64 does not wrap; `array` is not empty."""
    for value in (array.min(), array.max()):
        if not -(2**63) <= value.item() < 2**63:
            raise InputError(f"{what} must be integers of 64 bits, got {value}")


def in_range(ids: IntArray, n: int, what: str) -> None:
    """Check that every id is one of 0..n-1."""
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        bad = (ids < 0) | (ids >= n)
        first = int(ids[np.argmax(bad)])
        raise InputError(
            f"{what} must lie in 0..{n - 1} for a graph of {n} nodes, "
            f"got {first} ({np.count_nonzero(bad):,} out of range)"
        )


def finite(values: FloatArray, what: str) -> None:
    """Check for NaN and infinity; `values` is read in chunks, so it may be a memory map."""
    flat = values.reshape(-1) if values.flags.c_contiguous else values.ravel()
    for start in range(0, flat.size, _CHUNK):
        bad = ~np.isfinite(flat[start : start + _CHUNK])
        if bad.any():
            at = np.unravel_index(start + int(np.argmax(bad)), values.shape)
            where = ", ".join(str(int(i)) for i in at)
            raise InputError(
                f"{what} must be finite, got {values[at]} at [{where}]; "
                "fill or drop such values first"
            )


def edge_weights(weights: Any, m: int) -> FloatArray:
    array = as_array(weights, "weights")
    if array.shape != (m,):
        raise InputError(f"weights must have shape ({m},), one per edge, got {array.shape}")
    if array.dtype.kind not in "fiub":
        raise InputError(f"weights must be numbers, got {array.dtype}")
    with np.errstate(over="ignore"):  # what is beyond float32 is refused as infinite
        array = array.astype(np.float32, copy=False)
    finite(array, "weights")
    if array.size and float(array.min()) < 0:
        raise InputError(f"weights must not be negative, got {array.min():g}")
    return array


def csr_arrays(indptr: Any, indices: Any, weights: Any) -> tuple[CSR, int]:
    """CSR arrays that fit each other, and the number of nodes."""
    pointers = integers(indptr, "indptr").astype(np.int64, copy=False)
    columns = integers(indices, "indices")
    n = len(pointers) - 1
    if n < 1:
        raise InputError("the graph is empty: it must have at least one node")
    if pointers[0] != 0 or pointers[-1] != len(columns):
        raise InputError(
            f"indptr must run from 0 to len(indices) = {len(columns)}, "
            f"got {pointers[0]} to {pointers[-1]}"
        )
    # Compared, not subtracted: a difference of the largest numbers wraps round.
    falls = pointers[1:] < pointers[:-1]
    if np.any(falls):
        raise InputError(f"indptr must not decrease, but does after row {np.argmax(falls)}")
    in_range(columns, n, "indices")
    columns = columns.astype(index_dtype(n), copy=False)
    values = None if weights is None else edge_weights(weights, len(columns))
    return CSR(pointers, columns, values), n


def row_count(features: Any) -> int:
    shape = (features if hasattr(features, "shape") else as_array(features, "features")).shape
    if len(shape) != 2:
        raise InputError(f"features must be two-dimensional (nodes, features), got shape {shape}")
    return int(shape[0])


def edge_arrays(
    source: Any, target: Any, weights: Any, n: int
) -> tuple[IntArray, IntArray, FloatArray | None]:
    """Both ends of every edge, as ids 0..n-1, and their weights."""
    source, target = integers(source, "source"), integers(target, "target")
    if len(source) != len(target):
        raise InputError(
            f"source and target must be equally long, got {len(source)} and {len(target)}"
        )
    in_range(source, n, "source")
    in_range(target, n, "target")
    values = None if weights is None else edge_weights(weights, len(source))
    dtype = index_dtype(n)
    return source.astype(dtype, copy=False), target.astype(dtype, copy=False), values


_MOST_FEATURES = 2**31 - 1  # as many as a store can hold


def features(values: Any, n: int) -> FloatArray | csr_array:
    """(n, F) float32, dense or CSR, finite."""
    table = values if issparse(values) else as_array(values, "features")
    if row_count(table) != n:
        raise InputError(f"features must have {n} rows, one per node, got {table.shape[0]}")
    if table.shape[1] > _MOST_FEATURES:
        raise InputError(
            f"features must have at most {_MOST_FEATURES:,} columns, got {table.shape[1]:,}"
        )
    if issparse(values):
        matrix = csr_array(checked(values, "features"))
        matrix.sum_duplicates()
        numbers = _float32(matrix.data)
        return csr_array((numbers, matrix.indices, matrix.indptr), shape=matrix.shape)
    return np.ascontiguousarray(_float32(table))


def _float32(values: AnyArray) -> FloatArray:
    if values.dtype.kind not in "fiub":
        raise InputError(f"features must be numbers, got {values.dtype}")
    with np.errstate(over="ignore"):  # what is beyond float32 is refused as infinite
        numbers: FloatArray = values.astype(np.float32, copy=False)
    finite(numbers, "features")
    return numbers


def feature_names(names: Sequence[str] | None, width: int) -> tuple[str, ...] | None:
    """One name per feature."""
    if names is None:
        return None
    if len(names) != width:
        raise InputError(
            f"feature_names must have {width} entries, one per feature, got {len(names)}"
        )
    return tuple(str(name) for name in names)


def node_ids(ids: Sequence[Any], n: int) -> Sequence[Any]:
    if len(ids) != n:
        raise InputError(f"node_ids must have {n} entries, one per node, got {len(ids)}")
    plain = ids.tolist() if isinstance(ids, np.ndarray) else ids
    try:
        distinct = len(set(plain))
    except TypeError:
        raise InputError("node_ids must be numbers or texts, not lists") from None
    if distinct != n:
        seen: set[Any] = set()
        twice = next(i for i in plain if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise InputError(f"node_ids must be unique, but {twice!r} appears more than once")
    return ids


def split_part(part: Any, name: str, n: int) -> IntArray:
    ids = integers(part, f"split.{name}").astype(np.int64, copy=False)
    in_range(ids, n, f"split.{name}")
    if ids.size and np.bincount(ids, minlength=n).max() > 1:
        twice = int(np.argmax(np.bincount(ids, minlength=n) > 1))
        raise InputError(f"split.{name} must name each node once, but has node {twice} twice")
    return ids


def disjoint(parts: Mapping[str, IntArray], own_ids: Sequence[Any] | None) -> None:
    names = list(parts)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            common = np.intersect1d(parts[first], parts[second])
            if common.size:
                raise InputError(
                    f"the split's parts must not overlap, but {named(int(common[0]), own_ids)} "
                    f"is in both {first} and {second} ({common.size:,} such nodes)"
                )


def same_names(
    what: str, names: Sequence[str] | None, others: Sequence[str] | None, graph_name: str
) -> None:
    """Check that the run's classes or features are the graph's, in order, if both have names."""
    if names is not None and others is not None and tuple(names) != tuple(others):
        kind = {"class": "classes", "feature": "features"}[what]
        raise InputError(
            f"the run's {kind} are not those of {graph_name}: "
            f"{_first_difference(what, names, others)}"
        )


def _first_difference(what: str, names: Sequence[str], others: Sequence[str]) -> str:
    for number, name in enumerate(names):
        if number >= len(others) or others[number] != name:
            there = repr(others[number]) if number < len(others) else "missing"
            return f"{what} {number} is {name!r} in the run and {there} in the graph"
    return f"the graph also has {others[len(names)]!r}"


def plain_ids(own_ids: Sequence[Any] | None, n: int) -> list[Any]:
    """The user's own node ids as Python objects, 0..n-1 if there are none."""
    if own_ids is None:
        return list(range(n))
    return own_ids.tolist() if isinstance(own_ids, np.ndarray) else list(own_ids)


def check_default_weight(value: Any) -> None:
    """Refuse what cannot be the weight of edges that have none; None is no such weight."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value < np.inf):
        raise InputError(f"default_weight must be a number of at least 0, got {value!r}")
