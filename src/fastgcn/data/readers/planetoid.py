"""Planetoid: `ind.NAME.*`, the citation networks Cora, Citeseer and Pubmed as published.

`allx`, `ally` hold the rows of nodes 0, 1, ...; `tx`, `ty` those of the test nodes, in the
order of the ids in `test.index`; `x`, `y` repeat the rows of the public training nodes, which
come first; `graph` maps each node to its neighbours.

The files are Python-2 pickles. A pickle is a program that names functions and calls them; here
it is read without running them. Every name that a Planetoid file needs is mapped to an inert
class that only records its arguments; any other name is refused. The result is a record of the
file, from which `array`, `matrix` and `adjacency_lists` take the numbers and check them.
"""

import io
import math
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy.sparse import csr_array, vstack

from fastgcn.arrays import AnyArray, BoolArray, IntArray
from fastgcn.data.readers.parts import Edges, Reader, build, checked_sparse, choice, need, one_of
from fastgcn.errors import FormatError, UnsafeFileError
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph

_EXPECTS = "ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}"
_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_VALIDATION = 500


def _read(path: Path, *, name: str | None = None, split: str = "full") -> Graph:
    """The data set `name` of a folder; the name may be left out if there is only one.

    `split` is one of

    * `full`: all labels, as in the FastGCN paper: validation are the 500 nodes after those of
      `y`, test are those of `test.index`, training are all other labelled nodes;
    * `authors`: what the FastGCN authors' code does: the last 500 rows of `ally` validate;
    * `public`: the nodes of `y` train, the 500 after them validate, `test.index` tests.

    Ids in the range of the test nodes without a row (15 in Citeseer) become nodes without features
    and labels, in no part of the split.
    """
    choice(split, ("full", "authors", "public"), "split")
    name = one_of(path, _names(path), name, "name", _EXPECTS)
    files = dict(zip(_PARTS, need(path, *(f"ind.{name}.{part}" for part in _PARTS)), strict=True))
    known = matrix(read_record(files["allx"]), files["allx"])
    lists = adjacency_lists(read_record(files["graph"]), files["graph"])
    last = max((max(node, *others, 0) for node, others in lists.items()), default=-1)
    test = _test_ids(files["test.index"], known.shape[0], last)
    n = max(known.shape[0], int(test.max(initial=-1)) + 1)
    if last >= n:
        raise FormatError(f"{files['graph']} has an edge to node {last}, but nodes end at {n - 1}")
    labels = _labels(files, known.shape[0], test, n)
    return build(
        path,
        _edges(lists),
        n=n,
        directed=False,
        features=_features(files["tx"], known, test, n),
        labels=labels,
        split=_split(split, files, known.shape[0], test, labels >= 0),
        name=name,
    )


def _names(path: Path) -> list[str]:
    if not path.is_dir():
        return []
    found = set()
    for file in path.glob("ind.*"):
        for part in _PARTS:
            if file.name.endswith(f".{part}") and len(file.name) > len(f"ind..{part}"):
                found.add(file.name.removeprefix("ind.").removesuffix(f".{part}"))
    return sorted(found)


def _test_ids(path: Path, n_known: int, last: int) -> IntArray:
    """The test nodes, in the order of the rows of `tx`; `last` is the last node with an edge."""
    try:
        ids = np.array(
            [int(line) for line in path.read_text(encoding="utf-8").split()], dtype=np.int64
        )
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{path} must hold one node number per line: {error}") from None
    # Numbers may be left out, but none may be beyond the graph: features with that many rows
    # would be allocated.
    end = max(last, n_known + len(ids) - 1)
    if ids.size and not n_known <= ids.min() <= ids.max() <= end:
        raise FormatError(
            f"{path} must hold node numbers from {n_known}, the rows of allx, to {end}, "
            f"got {ids.min()} to {ids.max()}"
        )
    if len(np.unique(ids)) != len(ids):
        raise FormatError(f"{path} names a node twice")
    return ids


def _features(path: Path, known: csr_array, test: IntArray, n: int) -> csr_array:
    rows = matrix(read_record(path), path)
    if rows.shape != (len(test), known.shape[1]):
        raise FormatError(
            f"{path} must hold {len(test)} rows, one per test node, of {known.shape[1]} features, "
            f"got shape {rows.shape}"
        )
    placing = csr_array(
        (np.ones(len(test), np.float32), (test - known.shape[0], np.arange(len(test)))),
        shape=(n - known.shape[0], len(test)),
    )
    return csr_array(vstack([known, placing @ rows], format="csr"))


def _labels(files: dict[str, Path], n_known: int, test: IntArray, n: int) -> IntArray:
    """(n,) class ids."""
    labels = np.full(n, -1, np.int64)
    labels[:n_known], classes = _class_ids(files["ally"], n_known)
    labels[test], test_classes = _class_ids(files["ty"], len(test))
    if classes != test_classes:
        raise FormatError(
            f"{files['ty']} must have {classes} columns as ally has, got {test_classes}"
        )
    return labels


def _class_ids(path: Path, n_rows: int) -> tuple[IntArray, int]:
    """Class ids of one-hot rows (-1 for a row of zeros), and the number of classes."""
    rows = array(read_record(path), path)
    if rows.ndim != 2 or len(rows) != n_rows:
        raise FormatError(f"{path} must hold {n_rows} rows, one per node, got shape {rows.shape}")
    if not np.isin(rows, (0, 1)).all() or (rows.sum(axis=1) > 1).any():
        raise FormatError(f"{path} must hold rows of 0 with at most one 1")
    return np.where(rows.any(axis=1), rows.argmax(axis=1), -1), rows.shape[1]


def _split(
    kind: str, files: dict[str, Path], n_known: int, test: IntArray, labelled: BoolArray
) -> Split:
    if kind == "authors":
        if n_known <= _VALIDATION:
            raise FormatError(
                f"{files['ally']} has {n_known} rows, too few for split='authors', which validates "
                f"on the last {_VALIDATION}; use split='full' or split='random'"
            )
        train, val = np.split(np.arange(n_known), [n_known - _VALIDATION])
    else:
        n_first = _first_count(files["y"], n_known)
        val = np.arange(n_first, min(n_first + _VALIDATION, n_known))
        others = np.setdiff1d(np.arange(len(labelled)), np.concatenate([val, test]))
        train = others if kind == "full" else others[others < n_first]
    return Split(train[labelled[train]], val[labelled[val]], test[labelled[test]])


def _first_count(path: Path, n_known: int) -> int:
    rows = array(read_record(path), path)
    if rows.ndim != 2 or len(rows) > n_known:
        raise FormatError(
            f"{path} must repeat the first of the {n_known} rows of ally, got shape {rows.shape}"
        )
    return len(rows)


def _edges(lists: dict[int, list[int]]) -> Edges:
    degrees = [len(neighbours) for neighbours in lists.values()]
    source = np.repeat(np.fromiter(lists, np.int64, len(lists)), degrees)
    target = np.fromiter((end for ends in lists.values() for end in ends), np.int64, sum(degrees))
    return Edges(source, target)


class _Record:
    """Records the arguments of a call and the state set afterwards.

    A pickle may set the state of any object, so every inert class stores it here.
    """

    __slots__ = ("args", "state")

    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> "_Record":
        record = super().__new__(cls)
        record.args, record.state = args, None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_Record):
    """`_reconstruct(ndarray, (0,), b'b')`; the state holds the shape, the dtype and the bytes."""


class _Dtype(_Record):
    """`dtype('f4', False, True)`; the state begins with a version and the byte order."""


class _Matrix(_Record):
    """`csr_matrix()`; the state is the matrix's dictionary."""


class _Bytes(_Record):
    """`encode(text, 'latin1')`: how Python 3 writes bytes for Python 2."""


class _Word(_Record):
    """A class that is only mentioned: `ndarray`, and the `list` of a `defaultdict(list)`."""


class _Dictionary(dict[Any, Any]):
    """`defaultdict(list)`, without the default."""

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> NoReturn:
        raise TypeError("a dictionary has no state")


# Names as Python 2 wrote them, and as Python 3 with numpy 1 or 2 writes the same objects.
_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Word,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_matrix"): _Matrix,
    ("_codecs", "encode"): _Bytes,
    ("collections", "defaultdict"): _Dictionary,
    ("__builtin__", "list"): _Word,
    ("builtins", "list"): _Word,
}


class _InertUnpickler(pickle.Unpickler):
    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> type:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise UnsafeFileError(
                f"{self._path} asks for {module}.{name}, which no Planetoid file needs; it was "
                "refused and nothing was run: get the file from a source that you trust"
            ) from None


def read_record(path: Path) -> Any:
    """The content of a pickle as numbers, text, lists, dictionaries and inert records."""
    content = path.read_bytes()
    try:
        _check_opcodes(content)
        return _InertUnpickler(path, content).load()
    except UnsafeFileError:
        raise
    except Exception as error:
        # A damaged pickle can raise any exception; all of them mean damage.
        reason = str(error) or type(error).__name__
        raise FormatError(f"{path} is damaged or not a pickle: {reason}") from None


def _check_opcodes(content: bytes) -> None:
    """Check that every opcode is known and has its argument, and that no memo number is too large.

    The unpickler allocates a memo as long as the largest number that an object is stored under;
    a damaged number would make it allocate all memory.
    """
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument or 0) > len(content):
            raise ValueError(f"an object is remembered under the number {argument}")


def array(record: Any, path: Path) -> AnyArray:
    """The numbers of a recorded numpy array."""
    try:
        if not isinstance(record, _Array):
            raise TypeError(f"it holds a {_kind(record)}")
        _, shape, dtype, fortran, content = record.state
        values = np.frombuffer(_raw(content), _dtype(dtype))
        shape = tuple(int(size) for size in shape)
        if math.prod(shape) != len(values) or min(shape, default=0) < 0:
            raise ValueError(f"{len(values)} numbers do not make an array of shape {shape}")
        return values.reshape(shape, order="F" if fortran else "C")
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path} must hold an array of numbers: {error}") from None


def _raw(content: Any) -> bytes:
    """The bytes of an array; unpickling as latin1 turned them into text."""
    if isinstance(content, _Bytes):
        content = content.args[0]
    return content.encode("latin1") if isinstance(content, str) else bytes(content)


def _dtype(record: Any) -> np.dtype[Any]:
    code, order = record.args[0], record.state[1]
    # Only numbers. The bytes of dtype `O` would be used as addresses.
    if not re.fullmatch(r"[iufb][1248]", code) or order not in ("<", ">", "|", "="):
        raise ValueError(f"its dtype is {order}{code}")
    dtype: np.dtype[Any] = np.dtype(order + code)
    return dtype


def matrix(record: Any, path: Path) -> csr_array:
    """The numbers of a recorded CSR matrix; its other attributes are ignored."""
    state = record.state if isinstance(record, _Matrix) else None
    if not isinstance(state, dict) or not {"_shape", "data", "indices", "indptr"} <= state.keys():
        raise FormatError(f"{path} must hold a complete CSR matrix, got a {_kind(record)}")
    parts = {name: array(state[name], path) for name in ("data", "indices", "indptr")}
    return checked_sparse(path, "csr", np.asarray(state["_shape"]), parts)


def adjacency_lists(record: Any, path: Path) -> dict[int, list[int]]:
    """A dictionary from each node to the list of its neighbours, numbered from 0."""
    if not isinstance(record, dict):
        raise FormatError(f"{path} must hold a dictionary of lists, got a {_kind(record)}")
    for node, neighbours in record.items():
        if not isinstance(neighbours, list):
            raise FormatError(f"{path} must hold a list for each node, but not for {node!r}")
        for end in (node, *neighbours):
            if not (isinstance(end, int) and end >= 0):
                raise FormatError(f"{path} must name nodes by numbers from 0, got {end!r}")
    return record


def _kind(record: Any) -> str:
    return type(record).__name__.removeprefix("_").lower()


PLANETOID = Reader("planetoid", _EXPECTS, lambda path: bool(_names(path)), _read)
