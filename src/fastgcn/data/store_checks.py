"""What is checked when a store opens: enough to trust its sizes, without reading its edges."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastgcn.damage import check_all, damaged
from fastgcn.errors import FormatError
from fastgcn.types import AnyArray

MANIFEST = "graph.json"


def check_lengths(folder: Path, arrays: Mapping[str, AnyArray]) -> None:
    """What can be checked without reading the arrays: that their lengths agree."""
    for name in ("indptr", "indices", "train", "val", "test"):
        if name not in arrays:
            raise FormatError(f"{folder} is damaged: {MANIFEST} does not list {name}")
    n = len(arrays["indptr"]) - 1
    rows = {
        "features": n,
        "features_indptr": n + 1,
        "labels": n,
        "node_ids": n,
        "node_ids_offsets": n + 1,
        "weights": len(arrays["indices"]),
    }
    for name, expected in rows.items():
        if name in arrays and len(arrays[name]) != expected:
            raise FormatError(
                f"{folder} is damaged: {name} has {len(arrays[name])} rows instead of {expected}"
            )
    _check_rows_of(arrays, "indptr", "indices")
    if "features" in arrays:
        return
    for name in ("features_indptr", "features_indices", "features_data"):
        if name not in arrays:
            raise FormatError(f"{folder} is damaged: {MANIFEST} lists no features")
    _check_rows_of(arrays, "features_indptr", "features_indices")
    if len(arrays["features_data"]) != len(arrays["features_indices"]):
        raise damaged(arrays["features_data"], "it does not have a value for each of its columns")


def _check_rows_of(arrays: Mapping[str, AnyArray], indptr: str, indices: str) -> None:
    """Rows begin with the first entry and end with the last; those between are seen when read."""
    pointers, entries = arrays[indptr], len(arrays[indices])
    if len(pointers) == 0 or pointers[0] != 0 or pointers[-1] != entries:
        raise damaged(pointers, f"{indptr} and {indices} do not belong together")


def check_nodes(arrays: Mapping[str, AnyArray], manifest: Mapping[str, Any]) -> None:
    """Ids of nodes and classes are in range: a few numbers a node, unlike edges and features."""
    for name in ("train", "val", "test"):
        check_all(arrays[name], len(arrays["indptr"]) - 1, what="node")
    labels, names = arrays.get("labels"), manifest["class_names"]
    if labels is not None and labels.ndim == 1:
        classes = manifest.get("classes") if names is None else len(names)
        check_all(labels, int(classes or 0), lowest=-1, what="class")
