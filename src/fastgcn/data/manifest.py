"""The arrays that a manifest describes: opened memory-mapped, checked, and verified by checksum.

Stores and shards are folders of `.npy` files with a manifest. Opening checks all that compiled
code relies on, except columns: types and shapes, row offsets, and ids of nodes and classes, which
are a few numbers a node. Columns are checked when they are read.
"""

import hashlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.arrays import AnyArray, IntArray
from fastgcn.data.layout import ARRAY_NAMES, POINTERS
from fastgcn.errors import FormatError, MissingFileError
from fastgcn.files import open_regular
from fastgcn.graph.csr import check_all, check_offsets, damaged
from fastgcn.graph.labels import has_label
from fastgcn.npy import map_npy
from fastgcn.schema import Check, digest, integer, list_of, mapping, matching, record, refuse

_LONG, _NODES = ("int64", 1), ("int32", 1)
_SINGLE = ("float32", 1)

# The type and the number of dimensions that each array may have.
_TYPES = {
    "indptr": (_LONG,),
    "indices": (_NODES, _LONG),
    "weights": (_SINGLE,),
    "features": (("float32", 2),),
    "features_indptr": (_LONG,),
    "features_indices": (_NODES,),
    "features_data": (_SINGLE,),
    "labels": (_LONG, ("bool", 2), ("float64", 1)),
    "train": (_LONG,),
    "val": (_LONG,),
    "test": (_LONG,),
    "node_ids": (_LONG,),
    "node_ids_text": (("uint8", 1),),
    "node_ids_offsets": (_LONG,),
}
assert set(_TYPES) == set(ARRAY_NAMES)
_SPLIT = ("train", "val", "test")
_SPARSE = ("features_indptr", "features_indices", "features_data")


def _array_name(value: Any, field: str) -> None:
    if value not in ARRAY_NAMES:
        raise refuse(field, "the name of an array that a store has", value)


# What a manifest says of its arrays; those of early shards have no checksums.
ARRAYS: Check = mapping(
    record(
        {
            "dtype": matching("[<>|=][a-z][0-9]{1,2}", "a type such as <f4"),
            "shape": list_of(integer(), shortest=1, longest=2),
        },
        {"sha256": digest},
    ),
    _array_name,
)


def entry(array: AnyArray, sha256: str) -> dict[str, Any]:
    """A manifest's description of an array."""
    return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": sha256}


def open_arrays(
    folder: Path, described: Mapping[str, Mapping[str, Any]], manifest: str
) -> dict[str, AnyArray]:
    """The arrays of a folder, memory-mapped; each must be as its `manifest` describes it."""
    return {name: _open(folder, name, said, manifest) for name, said in described.items()}


def _open(folder: Path, name: str, said: Mapping[str, Any], manifest: str) -> AnyArray:
    path = folder / f"{name}.npy"
    try:
        array = map_npy(path, strict=True)
    except FileNotFoundError:
        raise FormatError(f"{folder} is damaged: {path.name} is missing") from None
    except ValueError as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    if list(array.shape) != said["shape"] or array.dtype.str != said["dtype"]:
        raise FormatError(
            f"{path} is damaged: {manifest} says {said['dtype']} {said['shape']}, "
            f"the file holds {array.dtype.str} {list(array.shape)}"
        )
    if (array.dtype.name, array.ndim) not in _TYPES[name]:
        raise FormatError(
            f"{path} is damaged: {name} cannot have the type {array.dtype} and "
            f"{array.ndim} dimensions"
        )
    return array


def check_arrays(
    folder: Path,
    arrays: Mapping[str, AnyArray],
    *,
    manifest: str,
    rows: range,
    n_features: int,
    n_classes: int,
) -> None:
    """Check the arrays of the nodes `rows` of a graph; all but columns, which are not read.

    The split must name each of these nodes at most once, and its training and validation nodes
    must have labels.
    """
    _check_names(folder, arrays, manifest)
    _check_lengths(folder, arrays, len(rows), n_features, n_classes)
    for offsets, (target, *_) in POINTERS.items():
        if offsets in arrays:
            check_offsets(arrays[offsets], len(arrays[target]), f"{offsets} and {target}")
    labels = arrays.get("labels")
    if labels is not None and labels.dtype.kind == "f":
        if np.isinf(labels).any():
            raise damaged(labels, "it holds a number that is not finite")
    elif labels is not None and labels.ndim == 1:
        check_all(labels, n_classes, lowest=-1, what="class")
    _check_split(arrays, rows, labels)


def _check_names(folder: Path, arrays: Mapping[str, AnyArray], manifest: str) -> None:
    """Check that no array is missing, and none is there in two forms."""
    needed = ["indptr", "indices", *_SPLIT]
    needed += ["node_ids_offsets"] * ("node_ids_text" in arrays)
    needed += ["node_ids_text"] * ("node_ids_offsets" in arrays)
    for name in needed:
        if name not in arrays:
            raise FormatError(f"{folder} is damaged: {manifest} does not list {name}")
    sparse = [name for name in _SPARSE if name in arrays]
    if len(sparse) != (0 if "features" in arrays else len(_SPARSE)):
        lists = "both dense and sparse features" if "features" in arrays else "no features"
        raise FormatError(f"{folder} is damaged: {manifest} lists {lists}")
    if "node_ids" in arrays and "node_ids_text" in arrays:
        raise FormatError(f"{folder} is damaged: {manifest} lists two kinds of node ids")


def _check_lengths(
    folder: Path, arrays: Mapping[str, AnyArray], n: int, n_features: int, n_classes: int
) -> None:
    """Check that the shapes of the arrays agree, without reading the arrays."""
    expected: dict[str, tuple[int, ...]] = {
        "indptr": (n + 1,),
        "features": (n, n_features),
        "features_indptr": (n + 1,),
        "labels": (n, n_classes),
        "node_ids": (n,),
        "node_ids_offsets": (n + 1,),
        "weights": arrays["indices"].shape,
    }
    if "features_indices" in arrays:
        expected["features_data"] = arrays["features_indices"].shape
    for name, shape in expected.items():
        if name in arrays and arrays[name].shape != shape[: arrays[name].ndim]:
            raise FormatError(
                f"{folder} is damaged: {name}.npy has the shape {list(arrays[name].shape)} instead "
                f"of {list(shape[: arrays[name].ndim])}"
            )


def _check_split(arrays: Mapping[str, AnyArray], rows: range, labels: AnyArray | None) -> None:
    """Check that the three parts name each of the nodes `rows` at most once."""
    named = np.zeros(len(rows), np.bool_)
    total = 0
    for part in _SPLIT:
        nodes: IntArray = arrays[part]
        check_all(nodes, rows.stop, lowest=rows.start, what="node")
        named[nodes - rows.start] = True
        total += len(nodes)
        if np.count_nonzero(named) != total:
            raise damaged(nodes, "it names a node twice, or one that is in another part as well")
        if part == "test" or labels is None:
            continue
        if not has_label(labels[nodes - rows.start]).all():
            raise damaged(nodes, "it names a node without a label")


def verify_arrays(folder: Path, described: Mapping[str, Mapping[str, Any]]) -> bool:
    """Read every array and compare its checksum; False if some have none, and so were not read."""
    sums = file_sums(folder / f"{name}.npy" for name in described)
    for (name, said), found in zip(described.items(), sums, strict=True):
        _compare(folder / f"{name}.npy", said.get("sha256", found), found)
    return all("sha256" in said for said in described.values())


def verify_file(path: Path, sha256: str) -> None:
    """Read a file and compare its checksum."""
    _compare(path, sha256, checksum(path))


def _compare(path: Path, said: str, found: str) -> None:
    if said != found:
        raise FormatError(f"{path} is damaged: its checksum has changed")


def file_sums(paths: Iterable[Path]) -> list[str]:
    """The SHA-256 of each file."""
    with ThreadPoolExecutor() as pool:  # hashing releases the GIL
        return list(pool.map(checksum, paths))


def checksum(path: Path) -> str:
    """The SHA-256 of a file; it must be there."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise MissingFileError(f"{path} is missing") from None
    except ValueError as error:
        raise FormatError(f"{path} is damaged: {error}") from None
