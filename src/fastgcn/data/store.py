"""The store: a graph as a folder of `.npy` files and a manifest, opened memory-mapped."""

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn._version import __version__
from fastgcn.arrays import AnyArray
from fastgcn.data.imported import COLUMNS, IMPORTED, plain_encoders
from fastgcn.data.layout import (
    ARRAY_NAMES,
    arrays_of,
    combined,
    graph_from,
    ids_of,
    npy_header,
    write_npy,
)
from fastgcn.data.manifest import (
    ARRAYS,
    check_arrays,
    checksum,
    entry,
    file_sums,
    open_arrays,
    verify_arrays,
    verify_file,
)
from fastgcn.errors import FormatError, InputError
from fastgcn.files import JSON_BYTES
from fastgcn.graph.csr import Cleaning, file_of
from fastgcn.graph.graph import Graph
from fastgcn.graph.ids import ID_ORDER, order_of
from fastgcn.npy import map_npy
from fastgcn.schema import (
    anything,
    boolean,
    digest,
    integer,
    list_of,
    mapping,
    optional,
    read_any,
    record,
    text,
    validate,
)
from fastgcn.scratch import reserve
from fastgcn.writing import FolderWriter, recover

MANIFEST = "graph.json"
# Stores with numbers to predict have the second schema, which earlier versions refuse.
SCHEMAS = (1, 2)
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
        size = len(header) + math.prod(shape) * np.dtype(dtype).itemsize
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
        imported: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the manifest and move the folder to its final place."""
        cleaned = cleaned or Cleaning()
        arrays = {f.stem: f for f in sorted(self.folder.glob("*.npy"))}
        sums = dict(zip(arrays, file_sums(arrays.values()), strict=True))
        headers = {array: map_npy(file, strict=True) for array, file in arrays.items()}
        manifest = {
            "kind": _KIND,
            "schema": SCHEMAS["labels" in headers and headers["labels"].dtype.kind == "f"],
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
            **({} if imported is None else {"imported": dict(imported)}),
            "fingerprint": combined(sums),
            "arrays": {array: entry(each, sums[array]) for array, each in headers.items()},
        }
        ids = ids_of(headers)
        if ids is not None:
            write_npy(self.folder / ID_ORDER, order_of(ids))
            manifest["id_order"] = checksum(self.folder / ID_ORDER)
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
    """Write `graph` to the store folder `out`; a graph that is mapped from a store is verified."""
    verify_origin(graph)
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
            imported=graph.imported,
        )


def is_store(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


# What `graph.json` says; stores of earlier versions lack some of it.
_STORE = record(
    {
        "name": text(),
        "directed": boolean,
        "features": integer(0, 2**31 - 1),
        "class_names": optional(list_of(text())),
        "cleaned": mapping(integer()),
        "fingerprint": digest,
        "arrays": ARRAYS,
    },
    {
        "nodes": integer(1),
        "stored_edges": integer(),
        "classes": integer(),
        "feature_names": optional(list_of(text())),
        "provenance": mapping(anything),
        "imported": IMPORTED,
        "id_order": digest,
    },
)


def open_store(folder: str | os.PathLike[str], *, verify: bool = False) -> Graph:
    """Open a store memory-mapped; `verify` also reads every array and compares checksums."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    arrays = open_arrays(folder, manifest["arrays"], MANIFEST)
    _check_counts(folder, manifest, arrays)
    if verify:
        verify_store(folder, manifest)
    return graph_from(
        arrays,
        n_features=manifest["features"],
        class_names=manifest["class_names"] and tuple(manifest["class_names"]),
        feature_names=_feature_names(manifest),
        directed=manifest["directed"],
        name=manifest["name"],
        cleaned=Cleaning(
            **{k: v for k, v in manifest["cleaned"].items() if k in Cleaning.__dataclass_fields__}
        ),
        stored_fingerprint=manifest["fingerprint"],
        imported=_imported(manifest),
    )


def _imported(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an import of tables has decided; stores of earlier versions only name the columns."""
    if "imported" in manifest:
        return dict(manifest["imported"])
    columns = manifest.get("provenance", {}).get("columns")
    check = record({"features": list_of(text())}, dict.fromkeys(COLUMNS, text()))
    try:
        check(columns, "columns")
    except ValueError:  # not an import's, which wrote all of them
        return None
    names, width = columns["features"], manifest["features"]
    if len(names) == width:
        encoders = plain_encoders(names)
    elif len(names) == 1:
        encoders = [{"column": names[0], "kind": "vector", "width": width, "missing": False}]
    else:
        return None
    own = {key: columns[key] for key in COLUMNS if key in columns}
    return {"columns": COLUMNS | own, "encoders": encoders, "notes": []}


def _check_counts(
    folder: Path, manifest: Mapping[str, Any], arrays: Mapping[str, AnyArray]
) -> None:
    """Check the arrays, and that the manifest's numbers are those of the arrays."""
    n = len(arrays["indptr"]) - 1 if "indptr" in arrays else manifest.get("nodes", 1)
    if n < 1:
        raise FormatError(f"{folder} is damaged: indptr.npy has no nodes")
    labels, names = arrays.get("labels"), manifest["class_names"]
    classes = manifest.get("classes", 0) if names is None else len(names)
    if labels is not None and labels.ndim == 2 and names is None:
        classes = manifest.get("classes", labels.shape[1])
    check_arrays(
        folder,
        arrays,
        manifest=MANIFEST,
        rows=range(n),
        n_features=manifest["features"],
        n_classes=classes,
    )
    counts = {
        "nodes": n,
        "stored_edges": len(arrays["indices"]),
        "classes": 0 if labels is None else classes,
    }
    for field, count in counts.items():
        if manifest.get(field, count) != count:
            raise FormatError(
                f"{folder / MANIFEST} is damaged: {field} must be {count}, as in the arrays, "
                f"got {manifest[field]}"
            )
    sums = {name: said["sha256"] for name, said in manifest["arrays"].items() if "sha256" in said}
    if len(sums) == len(arrays) and combined(sums) != manifest["fingerprint"]:
        raise FormatError(
            f"{folder / MANIFEST} is damaged: its fingerprint is not that of its checksums"
        )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The parsed `graph.json` of a store, checked to be one that this version reads."""
    recover(folder)
    path = folder / MANIFEST
    manifest = read_any(path, f"{folder} is not a fastgcn store: it has no {MANIFEST}")
    if not isinstance(manifest, dict) or manifest.get("kind") != _KIND:
        raise FormatError(f"{path} does not describe a fastgcn store")
    if manifest.get("schema") not in SCHEMAS:
        raise FormatError(
            f"{folder} has store schema {ascii(manifest.get('schema'))[:20]}, this version reads "
            f"{SCHEMAS[0]} and {SCHEMAS[1]}; import the data again or use a matching fastgcn"
        )
    validate(manifest, _STORE, path, "import the data again")
    names = manifest.get("feature_names")
    if names is not None and len(names) != manifest["features"]:
        raise FormatError(
            f"{path} is damaged: it names {len(names)} of {manifest['features']} features"
        )
    return manifest


def verify_store(folder: Path, manifest: Mapping[str, Any] | None = None) -> bool:
    """Read every array and compare its checksum; False if some have none."""
    manifest = read_manifest(folder) if manifest is None else manifest
    if "id_order" in manifest:
        verify_file(folder / ID_ORDER, manifest["id_order"])
    return verify_arrays(folder, manifest["arrays"])


def verify_origin(graph: Graph) -> None:
    """If a graph is mapped from a store, verify that store.

    A copy gets checksums of its own, under which damage would no longer be found.
    """
    file = file_of(graph.indptr)
    if file is not None and is_store(file.parent):
        verify_store(file.parent)


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    data = json.dumps(manifest, indent=1, ensure_ascii=False).encode()
    if len(data) > JSON_BYTES:
        raise InputError(
            f"the names of features and classes take {len(data) >> 20} MiB, and a store holds at "
            f"most {JSON_BYTES >> 20} MiB of them; shorten them or leave them out"
        )
    path.write_bytes(data)


def _feature_names(manifest: Mapping[str, Any]) -> tuple[str, ...] | None:
    """None if there are none, or if one column holds several features."""
    names = manifest.get("feature_names")
    if names is None:  # stores of earlier versions have them elsewhere
        columns = manifest.get("provenance", {}).get("columns")
        names = columns.get("features") if isinstance(columns, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return None
    return tuple(names) if names and len(names) == manifest["features"] else None
