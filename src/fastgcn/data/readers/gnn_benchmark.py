"""The `.npz` files of gnn-benchmark: Amazon Computers and Photo, Coauthor CS and Physics."""

from pathlib import Path
from typing import Any

from scipy.sparse import csr_array

from fastgcn.data.readers._build import build, edges_of, square
from fastgcn.data.readers._files import checked_compressed, read_npz
from fastgcn.errors import FormatError, MissingFileError
from fastgcn.graph.graph import Graph

FORMAT = "gnn-benchmark"
EXPECTS = "a file NAME.npz with adj_data, adj_indices, adj_indptr, adj_shape, attr_..., labels"

_PARTS = ("data", "indices", "indptr", "shape")


def matches(path: Path) -> bool:
    return path.suffix == ".npz" and path.is_file()


def read(path: Path, *, name: str | None = None, directed: bool | None = False) -> Graph:
    """Without a split: none was published.

    The Amazon graphs are published as directed and used as undirected, which is what
    `directed=False`, the default, makes of them. Entries of the adjacency matrix are edges
    whatever their value.
    """
    if not path.is_file():
        raise MissingFileError(f"{path} is no file; {FORMAT} expects {EXPECTS}")
    optional = [f"{what}_{part}" for what in ("attr", "labels") for part in _PARTS]
    # Class names are plain text in some files and pickled objects, which are skipped, in others.
    # The names of nodes and attributes are always such objects.
    optional += ["attr_matrix", "labels", "class_names"]
    arrays = read_npz(path, [f"adj_{part}" for part in _PARTS], optional)
    adjacency = square(_matrix(arrays, "adj", path), path)
    return build(
        path,
        edges_of(adjacency, weighted=False),
        n=adjacency.shape[0],
        directed=directed,
        features=_either(arrays, "attr", "attr_matrix", path),
        labels=_labels(arrays, path),
        class_names=arrays.get("class_names"),
        name=name,
    )


def _matrix(arrays: dict[str, Any], what: str, path: Path) -> csr_array:
    missing = [f"{what}_{part}" for part in _PARTS if f"{what}_{part}" not in arrays]
    if missing:
        raise FormatError(f"{path} lacks the array {missing[0]!r}")
    parts = {part: arrays[f"{what}_{part}"] for part in _PARTS[:3]}
    return checked_compressed(path, "csr", arrays[f"{what}_shape"], parts)


def _either(arrays: dict[str, Any], sparse: str, dense: str, path: Path) -> Any:
    """A table that is stored as a CSR matrix or as a plain array."""
    if f"{sparse}_data" in arrays:
        return _matrix(arrays, sparse, path)
    if dense not in arrays:
        raise FormatError(f"{path} has neither {sparse}_data nor {dense}: no such data in the file")
    return arrays[dense]


def _labels(arrays: dict[str, Any], path: Path) -> Any:
    labels = _either(arrays, "labels", "labels", path)
    return labels.toarray() if isinstance(labels, csr_array) else labels
