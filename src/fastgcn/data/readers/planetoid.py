"""Planetoid: `ind.NAME.*`, the citation networks Cora, Citeseer and Pubmed as published.

`allx`, `ally` hold the rows of nodes 0, 1, ...; `tx`, `ty` those of the test nodes, in the
order of the ids in `test.index`; `x`, `y` repeat the rows of the public training nodes, which
come first; `graph` maps each node to its neighbours.

The files are Python-2 pickles, which `fastgcn.data.readers.pickles` reads without running them.
"""

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, vstack

from fastgcn.arrays import BoolArray, IntArray
from fastgcn.data.readers.parts import Edges, Reader, build, choice, need, one_of, read_bytes
from fastgcn.data.readers.pickles import adjacency_lists, array, matrix, read_record
from fastgcn.errors import FormatError
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
            [int(line) for line in read_bytes(path).decode("ascii").split()], dtype=np.int64
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
    # The row of each node from allx's last one on; those without a row get the empty one.
    row_of = np.full(n - known.shape[0], len(test))
    row_of[test - known.shape[0]] = np.arange(len(test))
    empty = csr_array((1, known.shape[1]), dtype=np.float32)
    placed = csr_array(vstack([rows, empty], format="csr"))[row_of]
    return csr_array(vstack([known, placed], format="csr"))


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


PLANETOID = Reader("planetoid", _EXPECTS, lambda path: bool(_names(path)), _read)
