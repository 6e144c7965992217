"""The store: a graph as a folder of `.npy` files and a manifest, opened memory-mapped."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn._version import __version__
from fastgcn.arrays import AnyArray
from fastgcn.data.layout import (
    ARRAY_NAMES,
    arrays_of,
    combined,
    graph_from,
    npy_header,
    write_npy,
)
from fastgcn.errors import FormatError, MissingFileError
from fastgcn.graph.csr import Cleaning, check_all, damaged
from fastgcn.graph.graph import Graph
from fastgcn.scratch import reserve
from fastgcn.writing import FolderWriter, recover

MANIFEST = "graph.json"
SCHEMA = 1
_KIND = "fastgcn-store"


class StoreWriter(FolderWriter):
    """Writes a store; use as a context manager. Nothing is left behind if it fails.

    >>> with StoreWriter(folder) as writer:                                # doctest: +SKIP
    ...     writer.put("indptr", indptr)
    ...     rows = writer.create("features", (n, 602), np.float32)
    ...     rows[:1000] = ...
    ...     writer.finish(name="mine", directed=False, n_features=602, n_classes=41)
    """

    def __init__(self, out: str | os.PathLike[str], *, force: bool = False) -> None:
        super().__init__(out, force=force, what="a fastgcn store", replaceable=is_store)

    def path(self, name: str) -> Path:
        assert name in ARRAY_NAMES, name
        return self.folder / f"{name}.npy"

    def put(self, name: str, array: AnyArray) -> None:
        """Write a whole array."""
        write_npy(self.path(name), array)

    def create(self, name: str, shape: tuple[int, ...], dtype: Any) -> AnyArray:
        """A writable memory map to fill in; its space on the disk is reserved at once."""
        header = npy_header(np.dtype(dtype), shape)
        size = len(header) + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        with self.path(name).open("wb") as file:
            file.write(header)
            file.flush()
            reserve(file, size)
        if size == len(header):
            return np.empty(shape, dtype)
        return np.memmap(self.path(name), dtype, "r+", offset=len(header), shape=shape)

    def stream(self, name: str, dtype: Any) -> "_Stream":
        """A 1-D array that is written piece by piece; its length is known only at the end."""
        return _Stream(self.path(name), np.dtype(dtype))

    def finish(
        self,
        *,
        name: str,
        directed: bool,
        n_features: int,
        n_classes: int,
        class_names: tuple[str, ...] | None = None,
        feature_names: Sequence[str] | None = None,
        cleaned: Cleaning | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the manifest and move the folder to its final place."""
        cleaned = cleaned or Cleaning()
        arrays = {f.stem: f for f in sorted(self.folder.glob("*.npy"))}
        with ThreadPoolExecutor() as pool:  # hashing releases the GIL
            sums = dict(zip(arrays, pool.map(_file_sha256, arrays.values()), strict=True))
        headers = {n: np.load(f, mmap_mode="r", allow_pickle=False) for n, f in arrays.items()}
        manifest = {
            "kind": _KIND,
            "schema": SCHEMA,
            "name": name,
            "nodes": len(headers["indptr"]) - 1,
            "stored_edges": len(headers["indices"]),
            "directed": directed,
            "features": n_features,
            "classes": n_classes,
            "class_names": None if class_names is None else list(class_names),
            "feature_names": None if feature_names is None else list(feature_names),
            "cleaned": {f: getattr(cleaned, f) for f in cleaned.__dataclass_fields__},
            "provenance": {"fastgcn": __version__, **(provenance or {})},
            "fingerprint": combined(sums),
            "arrays": {n: entry(a) | {"sha256": sums[n]} for n, a in headers.items()},
        }
        write_manifest(self.folder / MANIFEST, manifest)
        self.place()


class _Stream:
    """Appends to a `.npy` file and writes its true length into the header when closed."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._file = path.open("wb")
        self._dtype = dtype
        self.length = 0
        # numpy pads headers so that the first axis can grow in place.
        self._room = len(npy_header(dtype, (0,)))
        self._file.write(b"\0" * self._room)

    def write(self, part: AnyArray) -> None:
        self._file.write(np.ascontiguousarray(part, dtype=self._dtype).data)
        self.length += len(part)

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        header = npy_header(self._dtype, (self.length,))
        assert len(header) == self._room, "the header must keep its length"
        with contextlib.closing(self._file):
            self._file.seek(0)
            self._file.write(header)


def save(
    graph: Graph, out: str | os.PathLike[str], *, force: bool = False, **provenance: Any
) -> None:
    """Write `graph` to the store folder `out`."""
    with StoreWriter(out, force=force) as writer:
        for name, array in arrays_of(graph).items():
            writer.put(name, array)
        writer.finish(
            name=graph.name,
            directed=bool(graph.directed),
            n_features=graph.n_features,
            n_classes=graph.n_classes,
            class_names=None if graph.class_names is None else tuple(graph.class_names),
            feature_names=graph.feature_names,
            cleaned=graph.cleaned,
            provenance=provenance,
        )


def is_store(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def open_store(folder: str | os.PathLike[str], *, verify: bool = False) -> Graph:
    """Open a store memory-mapped; `verify` also reads every array and compares checksums."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    arrays = {name: open_array(folder, name, said) for name, said in manifest["arrays"].items()}
    _check_lengths(folder, arrays)
    _check_nodes(arrays, manifest)
    if verify:
        for name, said in manifest["arrays"].items():
            if _file_sha256(folder / f"{name}.npy") != said["sha256"]:
                raise FormatError(f"{folder}/{name}.npy is damaged: its checksum has changed")
    return graph_from(
        arrays,
        n_features=manifest["features"],
        class_names=manifest["class_names"] and tuple(manifest["class_names"]),
        feature_names=_feature_names(manifest),
        directed=manifest["directed"],
        name=manifest["name"],
        cleaned=Cleaning(**manifest["cleaned"]),
        stored_fingerprint=manifest["fingerprint"],
    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The parsed `graph.json` of a store, checked to be one that this version reads."""
    recover(folder)
    path = folder / MANIFEST
    manifest = load_manifest(path, f"{folder} is not a fastgcn store: it has no {MANIFEST}")
    if manifest.get("kind") != _KIND:
        raise FormatError(f"{path} does not describe a fastgcn store")
    if manifest.get("schema") != SCHEMA:
        raise FormatError(
            f"{folder} has store schema {manifest.get('schema')}, this version reads {SCHEMA}; "
            "import the data again or use a matching fastgcn"
        )
    required = ("arrays", "features", "class_names", "directed", "name", "cleaned", "fingerprint")
    require(manifest, required, path, "import the data again")
    unknown = set(manifest["arrays"]) - set(ARRAY_NAMES)
    if unknown:
        raise FormatError(f"{path} names an array that no store has: {sorted(unknown)[0]!r}")
    return manifest


def load_manifest(path: Path, absent: str) -> dict[str, Any]:
    """The JSON object in a file, {} if it holds something else; no file: an error `absent`."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(absent) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path} is not valid JSON: {error}") from None
    return manifest if isinstance(manifest, dict) else {}


def require(manifest: Mapping[str, Any], keys: Iterable[str], path: Path, remedy: str) -> None:
    """Raise if a manifest lacks one of the keys."""
    missing = [key for key in keys if key not in manifest]
    if missing:
        raise FormatError(f"{path} lacks {', '.join(missing)}; {remedy}")


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")


def entry(array: AnyArray) -> dict[str, Any]:
    """A manifest's description of an array, which `open_array` checks."""
    return {"dtype": array.dtype.str, "shape": list(array.shape)}


def open_array(
    folder: Path, name: str, said: Mapping[str, Any], manifest: str = MANIFEST
) -> AnyArray:
    """An array of a folder, memory-mapped; it must match its `manifest`."""
    path = folder / f"{name}.npy"
    try:
        # numpy cannot map an array without elements.
        mode = None if 0 in said["shape"] else "r"
        array: AnyArray = np.load(path, mmap_mode=mode, allow_pickle=False)  # type: ignore[arg-type]
    except FileNotFoundError:
        raise FormatError(f"{folder} is damaged: {path.name} is missing") from None
    except (ValueError, EOFError) as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    if list(array.shape) != said["shape"] or array.dtype.str != said["dtype"]:
        raise FormatError(
            f"{path} is damaged: {manifest} says {said['dtype']} {said['shape']}, "
            f"the file holds {array.dtype.str} {list(array.shape)}"
        )
    return array


def _feature_names(manifest: Mapping[str, Any]) -> tuple[str, ...] | None:
    """None if there are none, or if one column holds several features."""
    names = manifest.get("feature_names")
    if names is None:  # stores of earlier versions have them elsewhere
        names = manifest.get("provenance", {}).get("columns", {}).get("features")
    return tuple(names) if names and len(names) == manifest["features"] else None


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_lengths(folder: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Check that the lengths of the arrays agree, without reading the arrays."""
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
    _check_pointers(arrays, "indptr", "indices")
    if "features" in arrays:
        return
    for name in ("features_indptr", "features_indices", "features_data"):
        if name not in arrays:
            raise FormatError(f"{folder} is damaged: {MANIFEST} lists no features")
    _check_pointers(arrays, "features_indptr", "features_indices")
    if len(arrays["features_data"]) != len(arrays["features_indices"]):
        raise damaged(arrays["features_data"], "it does not have a value for each of its columns")


def _check_pointers(arrays: Mapping[str, AnyArray], indptr: str, indices: str) -> None:
    """Check the first and the last row pointer; the others are checked when rows are read."""
    pointers, entries = arrays[indptr], len(arrays[indices])
    if len(pointers) == 0 or pointers[0] != 0 or pointers[-1] != entries:
        raise damaged(pointers, f"{indptr} and {indices} do not belong together")


def _check_nodes(arrays: Mapping[str, AnyArray], manifest: Mapping[str, Any]) -> None:
    """Check that the ids of nodes and classes are in range: a few numbers for each node."""
    for name in ("train", "val", "test"):
        check_all(arrays[name], len(arrays["indptr"]) - 1, what="node")
    labels, names = arrays.get("labels"), manifest["class_names"]
    if labels is not None and labels.ndim == 1:
        classes = manifest.get("classes") if names is None else len(names)
        check_all(labels, int(classes or 0), lowest=-1, what="class")
