"""A graph as named arrays, and arrays as `.npy` files: the layout of stores and shards."""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from scipy.sparse import csr_array

from fastgcn.arrays import AnyArray, forget
from fastgcn.graph.checks import Split
from fastgcn.graph.csr import StoredMatrix, index_dtype
from fastgcn.graph.graph import Graph
from fastgcn.graph.ids import TextIds as TextIds

# Every array that a store may hold; a store that names another one is refused.
ARRAY_NAMES = (
    "indptr",
    "indices",
    "weights",
    "features",
    "features_indptr",
    "features_indices",
    "features_data",
    "labels",
    "train",
    "val",
    "test",
    "node_ids",
    "node_ids_text",
    "node_ids_offsets",
)


def arrays_of(graph: Graph) -> dict[str, AnyArray]:
    """The graph's arrays by name, in the dtypes of a store."""
    arrays: dict[str, AnyArray] = {"indptr": graph.indptr, "indices": graph.indices}
    if graph.weights is not None:
        arrays["weights"] = graph.weights
    arrays |= feature_arrays(graph.features)
    if graph.labels is not None:
        arrays["labels"] = graph.labels
    arrays |= dict(graph.split.items())
    if graph.node_ids is not None:
        arrays |= id_arrays(graph.node_ids)
    return arrays


def feature_arrays(features: AnyArray | csr_array) -> dict[str, AnyArray]:
    if isinstance(features, csr_array):
        return {
            "features_indptr": features.indptr.astype(np.int64, copy=False),
            "features_indices": features.indices.astype(np.int32, copy=False),
            "features_data": features.data,
        }
    return {"features": features}


def id_arrays(ids: Sequence[Any]) -> dict[str, AnyArray]:
    if isinstance(ids, TextIds):
        return {"node_ids_text": ids.text, "node_ids_offsets": ids.offsets}
    array = np.asarray(ids)
    if array.dtype.kind in "iu":
        return {"node_ids": array.astype(np.int64, copy=False)}
    return id_arrays(TextIds.pack(ids))


def features_of(arrays: Mapping[str, AnyArray], n_features: int) -> AnyArray | csr_array:
    """The features among a store's arrays, whose offsets were checked: dense (n, F), or sparse."""
    if "features" in arrays:
        return arrays["features"]
    values, columns = arrays["features_data"], arrays["features_indices"]
    # scipy would copy the columns if the row pointers had another dtype.
    indptr = arrays["features_indptr"].astype(index_dtype(len(columns)))
    return StoredMatrix.of(values, columns, indptr, n_features)


def ids_of(arrays: Mapping[str, Any]) -> Sequence[Any] | None:
    """The user's node ids among a store's arrays; None if they are 0..n-1."""
    if "node_ids_text" in arrays:
        return TextIds(arrays["node_ids_text"], arrays["node_ids_offsets"])
    return arrays.get("node_ids")


def graph_from(arrays: Mapping[str, AnyArray], n_features: int, **fields: Any) -> Graph:
    """The graph of a store's arrays (the inverse of `arrays_of`), not checked again."""
    return Graph.trusted(
        indptr=arrays["indptr"],
        indices=arrays["indices"],
        weights=arrays.get("weights"),
        features=features_of(arrays, n_features),
        labels=arrays.get("labels"),
        split=Split(arrays["train"], arrays["val"], arrays["test"]),
        node_ids=ids_of(arrays),
        **fields,
    )


# Row pointers, and the arrays that they point into.
POINTERS = {
    "indptr": ("indices", "weights"),
    "features_indptr": ("features_indices", "features_data"),
    "node_ids_offsets": ("node_ids_text",),
}


def rows_of(arrays: Mapping[str, AnyArray], first: int, stop: int) -> dict[str, AnyArray]:
    """The arrays of nodes first..stop-1 only, as views if possible.

    Row pointers start at 0 again; columns and the split keep the ids of the whole graph.
    """
    own: dict[str, AnyArray] = {}
    for pointers, targets in POINTERS.items():
        if pointers in arrays:
            offsets = arrays[pointers][first : stop + 1]
            own[pointers] = offsets - offsets[0]
            for name in targets:
                if name in arrays:
                    own[name] = arrays[name][offsets[0] : offsets[-1]]
    for name in ("labels", "features", "node_ids"):
        if name in arrays:
            own[name] = arrays[name][first:stop]
    for name in ("train", "val", "test"):
        nodes = arrays[name]
        own[name] = nodes[(nodes >= first) & (nodes < stop)]
    return own


def fingerprint(graph: Graph) -> str:
    """A digest of the graph's content; equal arrays have equal ones, in memory and in a store."""
    if graph.stored_fingerprint is not None:
        return graph.stored_fingerprint
    return combined({name: npy_sha256(array) for name, array in arrays_of(graph).items()})


def combined(checksums: Mapping[str, str]) -> str:
    """One digest of the digests of all arrays."""
    text = "".join(f"{name} {checksums[name]}\n" for name in sorted(checksums))
    return hashlib.sha256(text.encode()).hexdigest()


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes that `numpy.save` writes before a C-ordered array of this kind."""
    buffer = io.BytesIO()
    descr = npy.dtype_to_descr(dtype)
    npy.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def write_npy(path: Path, array: AnyArray) -> None:
    """Write the file that `numpy.save` writes, but without reading a memory map into memory."""
    with path.open("wb") as file:
        file.write(npy_header(array.dtype, array.shape))
        for part in raw_bytes(array):
            file.write(part.data)
            forget(array)


def npy_sha256(array: AnyArray) -> str:
    """The SHA-256 of the file that `numpy.save` makes of `array`."""
    digest = hashlib.sha256(npy_header(array.dtype, array.shape))
    for part in raw_bytes(array):
        digest.update(part.data)
    return digest.hexdigest()


def raw_bytes(array: AnyArray, chunk: int = 1 << 26) -> Iterator[AnyArray]:
    """The array's bytes in C order, as uint8 pieces of at most `chunk`."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, flat.size, chunk):
        yield flat[start : start + chunk]
