"""Shards: a graph as a folder of parts; each process opens only its own parts."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn._version import __version__
from fastgcn.arrays import AnyArray, FloatArray, IntArray, forget
from fastgcn.data.imported import IMPORTED
from fastgcn.data.layout import (
    POINTERS,
    arrays_of,
    features_of,
    fingerprint,
    ids_of,
    raw_bytes,
    rows_of,
    write_npy,
)
from fastgcn.data.manifest import (
    ARRAYS,
    check_arrays,
    entry,
    file_sums,
    open_arrays,
    verify_arrays,
)
from fastgcn.data.store import verify_origin, write_manifest
from fastgcn.errors import FormatError, InputError, MissingFileError, nearest
from fastgcn.graph.checks import Split
from fastgcn.graph.csr import CSR, check_no_loops, check_sorted
from fastgcn.graph.graph import Graph
from fastgcn.graph.labels import Labels, Task, task_of
from fastgcn.progress import progress
from fastgcn.schema import (
    boolean,
    digest,
    integer,
    list_of,
    optional,
    read_any,
    record,
    text,
    validate,
)
from fastgcn.scratch import make_room
from fastgcn.writing import FolderWriter, recover

# Parts with numbers to predict have the second schema, which earlier versions refuse.
SCHEMAS = (2, 3)
MANIFEST = "part.json"
KIND = "fastgcn-part"


@dataclass(frozen=True, slots=True)
class StoredShard:
    """The shard of one process, memory-mapped: one part of a graph, or several neighbouring ones.

    Attributes:
        outline: the whole graph's sizes, names and fingerprint, without content.
        bounds: (processes+1,) where the nodes of each process begin and end.
        csr, features, labels: this process's rows; columns are ids of the whole graph.
        split: this process's nodes of each part, by ids of the whole graph.
        node_ids: the user's ids of these nodes; None if these are their numbers.
    """

    outline: Graph
    bounds: IntArray
    csr: CSR
    features: FloatArray | csr_array
    labels: Labels
    split: Split
    node_ids: Sequence[Any] | None


def is_sharded(folder: Path) -> bool:
    """True if a folder holds parts of a graph, all of them or some."""
    return _some_part(folder) is not None


def _some_part(folder: Path) -> Path | None:
    recover(folder)
    found = (part for part in folder.glob("part-*") if (part / MANIFEST).is_file())
    return min(found, default=None)


def open_parts(folder: str | os.PathLike[str], rank: int, processes: int) -> StoredShard:
    """The parts of process `rank`, as one shard.

    Every process gets equally many consecutive parts, or one more. The folder need not hold the
    parts of other processes.
    """
    folder = Path(folder)
    there = _some_part(folder)
    if there is None:
        raise MissingFileError(
            f"{folder} has no part of a graph: this process needs one; copy it here, or shard "
            "the store again"
        )
    whole = _read_manifest(there)["whole"]
    bounds = np.array(whole["bounds"], dtype=np.int64)
    count = len(bounds) - 1
    if processes > count:
        raise InputError(
            f"{folder} can be shared by at most {count} of the {processes} processes; start that "
            f"many, or shard the store again with --parts {processes}"
        )
    cuts = np.arange(processes + 1) * count // processes
    numbers = range(cuts[rank], cuts[rank + 1])
    arrays = _joined([_open_part(folder, number, whole) for number in numbers], folder, whole)
    return StoredShard(
        outline(whole).with_source({"data": str(folder.resolve())}),
        bounds[cuts],
        CSR(arrays["indptr"], arrays["indices"], arrays.get("weights")),
        features_of(arrays, whole["features"]),
        arrays["labels"],
        Split(arrays["train"], arrays["val"], arrays["test"]),
        ids_of(arrays),
    )


def _open_part(folder: Path, number: int, whole: Mapping[str, Any]) -> dict[str, AnyArray]:
    """The arrays of one part, which must belong to this whole."""
    path = folder / f"part-{number}"
    manifest = _read_manifest(path)
    if manifest["number"] != number:
        raise FormatError(f"{path} holds part {manifest['number']}; it was renamed or copied over")
    if manifest["whole"] != whole:
        raise FormatError(f"{path} is a part of another graph, or of another sharding, than others")
    arrays = open_arrays(path, manifest["arrays"], MANIFEST)
    first, stop = whole["bounds"][number : number + 2]
    check_arrays(
        path,
        arrays,
        manifest=MANIFEST,
        rows=range(first, stop),
        n_features=whole["features"],
        n_classes=whole["classes"],
    )
    kinds = {
        "labels": "labels" in arrays,
        "task": "labels" not in arrays or task_of(arrays["labels"]) == _task(whole),
        "sparse": ("features" not in arrays) == whole["sparse"],
    }
    for field, agrees in kinds.items():
        if not agrees:
            raise FormatError(
                f"{path} is damaged: its arrays are not what {MANIFEST} says: {field}"
            )
    return arrays


def _task(whole: Mapping[str, Any]) -> Task:
    if whole.get("regression"):
        return "regression"
    return "multilabel" if whole["multilabel"] else "classification"


def _joined(
    parts: Sequence[Mapping[str, AnyArray]], folder: Path, whole: Mapping[str, Any]
) -> Mapping[str, AnyArray]:
    """The arrays of several parts as those of one part, in unnamed files."""
    if len(parts) == 1:
        return parts[0]
    joined = {}
    for name in parts[0]:
        arrays = [part[name] for part in parts if name in part]
        if len({(array.dtype, *array.shape[1:]) for array in arrays}) > 1 or any(
            part.keys() != parts[0].keys() for part in parts
        ):
            raise FormatError(f"{folder} is damaged: its parts do not have the same {name}.npy")
        if name in POINTERS:
            ends = np.cumsum([0, *(array[-1] for array in arrays)])
            rows = [array[:-1] + end for array, end in zip(arrays, ends[:-1], strict=True)]
            joined[name] = np.concatenate([*rows, ends[-1:]])
        else:
            # Checked here, where they are read and still have a name.
            for part in parts if name in ("indices", "features_indices") else ():
                offsets = part[name.replace("indices", "indptr")]
                check_sorted(
                    offsets, part[name], whole["nodes" if name == "indices" else "features"]
                )
            joined[name] = _in_one_file(arrays, folder)
    return joined


def _in_one_file(arrays: Sequence[AnyArray], folder: Path) -> AnyArray:
    """The arrays concatenated, mapped from a file that is deleted when the process ends."""
    shape = sum(map(len, arrays)), *arrays[0].shape[1:]
    n_bytes = sum(array.nbytes for array in arrays)
    if n_bytes == 0:
        return np.empty(shape, arrays[0].dtype)
    place = folder if os.access(folder, os.W_OK) else Path.cwd()
    with tempfile.TemporaryFile(dir=place) as file:
        make_room(file, n_bytes, place, "parts that are joined")
        for array in arrays:
            for piece in raw_bytes(array):
                file.write(piece.data)
                forget(array)
        file.flush()
        return np.memmap(file, arrays[0].dtype, "r", shape=shape)


def outline(whole: Mapping[str, Any]) -> Graph:
    """A graph with the shape of the whole, in which every array is one number repeated.

    For code that needs only sizes and names: settings, messages, the run's folder.
    """
    n, classes = whole["nodes"], whole["classes"]
    sizes = whole["split"]
    if _task(whole) == "regression":
        labels: AnyArray = np.broadcast_to(np.float64(0), n)
    elif whole["multilabel"]:
        labels = np.broadcast_to(np.False_, (n, classes))
    else:
        labels = np.broadcast_to(np.int64(classes - 1), n)
    features: AnyArray | csr_array = np.broadcast_to(np.float32(0), (n, whole["features"]))
    if whole["sparse"]:
        features = csr_array((1, whole["features"]), dtype=np.float32)
    split = Split(*(np.broadcast_to(np.int64(0), sizes[name]) for name in ("train", "val", "test")))
    names, columns = (
        None if whole[key] is None else tuple(whole[key])
        for key in ("class_names", "feature_names")
    )
    return Graph.trusted(
        indptr=np.broadcast_to(np.int64(0), n + 1),
        indices=np.broadcast_to(np.int32(0), whole["stored_edges"]),
        weights=None,
        features=features,
        labels=labels,
        split=split,
        class_names=names,
        feature_names=columns,
        directed=whole["directed"],
        name=whole["name"],
        stored_fingerprint=whole["fingerprint"],
        imported=whole.get("imported"),
    )


# What `part.json` says.
_PART = record(
    {
        "number": integer(),
        "arrays": ARRAYS,
        "whole": record(
            {
                "name": text(),
                "nodes": integer(1),
                "stored_edges": integer(),
                "directed": boolean,
                "features": integer(0, 2**31 - 1),
                "sparse": boolean,
                "classes": integer(),
                "multilabel": boolean,
                "class_names": optional(list_of(text())),
                "feature_names": optional(list_of(text())),
                "split": record(dict.fromkeys(("train", "val", "test"), integer())),
                "bounds": list_of(integer(), shortest=2),
                "fingerprint": digest,
            },
            {"imported": optional(IMPORTED), "regression": boolean},
        ),
    }
)


def _read_manifest(path: Path) -> dict[str, Any]:
    absent = (
        f"{path} is missing: this process needs that part of the graph; shard the store again, "
        "or copy the part here"
    )
    manifest = read_any(path / MANIFEST, absent)
    if (
        not isinstance(manifest, dict)
        or manifest.get("kind") != KIND
        or manifest.get("schema") not in SCHEMAS
    ):
        raise FormatError(
            f"{path / MANIFEST} does not describe a part of schema {SCHEMAS[0]} or {SCHEMAS[1]}; "
            "shard the store again"
        )
    validate(manifest, _PART, path / MANIFEST, "shard the store again")
    _check_sums(manifest, path / MANIFEST)
    return manifest


def _check_sums(manifest: Mapping[str, Any], path: Path) -> None:
    """Check that the numbers in a manifest belong together."""
    whole = manifest["whole"]
    n, bounds, split = whole["nodes"], whole["bounds"], whole["split"]
    width = max(whole["features"], whole["classes"], 1)
    consistent = {
        "bounds": bounds[0] == 0
        and bounds[-1] == n
        and all(first < stop for first, stop in pairwise(bounds)),
        "number": manifest["number"] < len(bounds) - 1,
        "split": sum(split[part] for part in ("train", "val", "test")) <= n,
        "class_names": len(whole["class_names"] or ()) in (0, whole["classes"]),
        "feature_names": len(whole["feature_names"] or ()) in (0, whole["features"]),
        "nodes": 8 * (n + 1) * width < 2**63 and 8 * whole["stored_edges"] < 2**63,
    }
    for field, holds in consistent.items():
        if not holds:
            raise FormatError(
                f"{path} is damaged: {field} does not agree with the other numbers in it; shard "
                "the store again"
            )


def verify_shards(folder: Path) -> bool:
    """Compare the checksums of all parts in a folder; False if some have none."""
    verified = True
    for part in sorted(folder.glob("part-*")):
        verified &= verify_arrays(part, _read_manifest(part)["arrays"])
    return verified


BALANCED_BY = ("train", "nodes", "edges")

# The weight of other nodes, if parts are balanced by training nodes.
_OTHERS = 0.1


def cut(graph: Graph, parts: int, by: str = "train") -> IntArray:
    """(parts+1,) int64: bounds of ranges of nodes, none of them empty.

    Ranges have about equally many training nodes (others count a tenth), nodes, or edges.

    >>> import fastgcn
    >>> cut(fastgcn.load("digits"), 2, "nodes").tolist()
    [0, 899, 1797]
    """
    n = graph.n_nodes
    if by not in BALANCED_BY:
        raise InputError(
            f"by must be one of {', '.join(BALANCED_BY)}, got {by!r}" + nearest(by, BALANCED_BY)
        )
    if not 1 <= parts <= n:
        raise InputError(f"parts must lie in 1..{n:,}, the nodes of {graph.name}, got {parts:,}")
    if by == "edges":
        weight = np.asarray(graph.indptr[1:] + np.arange(1, n + 1))
    elif by == "train":
        member = np.full(n, _OTHERS)
        member[graph.split.train] = 1
        weight = np.cumsum(member)
    else:
        weight = np.arange(1, n + 1)
    wanted = weight[-1] * np.arange(1, parts) / parts
    inner = np.searchsorted(weight, wanted) + 1
    # If one node weighs more than a part should, the next parts still get a node each.
    inner = np.maximum.accumulate(inner - np.arange(parts - 1)) + np.arange(parts - 1)
    inner = np.minimum(inner, n - parts + np.arange(1, parts))
    return np.concatenate([[0], inner, [n]]).astype(np.int64)


def shard(
    graph: Graph, parts: int, out: str | os.PathLike[str], *, by: str = "train", force: bool = False
) -> IntArray:
    """Write a graph as a folder of parts, in bounded memory; returns their bounds.

    The folder is written under a temporary name and renamed at the end. A graph that is mapped
    from a store is verified first.
    """
    bounds = cut(graph, parts, by)
    if graph.labels is None:
        raise InputError(f"{graph.name} has no labels, and shards are for training")
    with (
        FolderWriter(out, force=force, what="a folder of shards", replaceable=is_sharded) as writer,
        progress("Writing parts", parts, "parts") as advance,
    ):
        verify_origin(graph)
        whole = _described(graph, bounds)
        arrays = arrays_of(graph)
        for number in range(parts):
            first, stop = whole["bounds"][number : number + 2]
            own = rows_of(arrays, first, stop)
            check_sorted(own["indptr"], own["indices"], graph.n_nodes)
            check_no_loops(own["indptr"], own["indices"], first)
            _write_part(own, whole, number, writer.folder / f"part-{number}")
            advance(1)
        writer.place()
    return bounds


def _described(graph: Graph, bounds: IntArray) -> dict[str, Any]:
    """The description of the whole graph, which every part contains."""
    names, features = (
        None if each is None else list(each) for each in (graph.class_names, graph.feature_names)
    )
    return {
        "name": graph.name,
        "nodes": graph.n_nodes,
        "stored_edges": len(graph.indices),
        "directed": bool(graph.directed),
        "features": graph.n_features,
        "sparse": isinstance(graph.features, csr_array),
        "classes": graph.n_classes,
        "multilabel": graph.multilabel,
        **({"regression": True} if graph.regression else {}),
        "class_names": names,
        "feature_names": features,
        "split": {name: len(nodes) for name, nodes in graph.split.items()},
        "bounds": bounds.tolist(),
        "fingerprint": fingerprint(graph),
        "imported": graph.imported,
    }


def _write_part(
    arrays: Mapping[str, AnyArray], whole: Mapping[str, Any], number: int, folder: Path
) -> None:
    folder.mkdir()
    for name, array in arrays.items():
        write_npy(folder / f"{name}.npy", array)
    sums = file_sums(folder / f"{name}.npy" for name in arrays)
    manifest = {
        "kind": KIND,
        "schema": SCHEMAS[bool(whole.get("regression"))],
        "fastgcn": __version__,
        "number": number,
        "arrays": {
            name: entry(array, sha256)
            for (name, array), sha256 in zip(arrays.items(), sums, strict=True)
        },
        "whole": whole,
    }
    write_manifest(folder / MANIFEST, manifest)
