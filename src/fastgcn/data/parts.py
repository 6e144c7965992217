"""Parts of a sharded graph: opening one without the others, and what it says of the whole."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn.csr import CSR
from fastgcn.data.store import open_array
from fastgcn.errors import FormatError, InputError, MissingFileError
from fastgcn.graph import Graph, Split
from fastgcn.types import AnyArray, BoolArray, FloatArray, IntArray

SCHEMA = 1
MANIFEST = "part.json"
KIND = "fastgcn-part"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a sharded graph, memory-mapped.

    Attributes:
        outline: the whole graph's sizes, names and fingerprint, without content.
        bounds: (parts+1,) where the ranges of the parts begin and end.
        number: which part this is.
        csr, features, labels: own rows; columns are ids of the whole graph.
        split: own nodes, by ids of the whole graph.
    """

    outline: Graph
    bounds: IntArray
    number: int
    csr: CSR
    features: FloatArray | csr_array
    labels: IntArray | BoolArray
    split: Split


def is_sharded(folder: Path) -> bool:
    """Whether a folder holds parts of a graph, all of them or some."""
    return folder.is_dir() and any((part / MANIFEST).is_file() for part in folder.glob("part-*"))


def open_part(folder: str | os.PathLike[str], number: int, parts: int) -> Part:
    """Part `number` of a folder that must hold one for each of `parts` processes."""
    path = Path(folder) / f"part-{number}"
    manifest = _read_manifest(path)
    whole = manifest["whole"]
    bounds = np.array(whole["bounds"], dtype=np.int64)
    if len(bounds) - 1 != parts:
        raise InputError(
            f"{folder} has {len(bounds) - 1} parts, and {parts} processes are to train on it; "
            f"start {len(bounds) - 1}, or shard the store again with --parts {parts}"
        )
    if manifest["number"] != number:
        raise FormatError(f"{path} holds part {manifest['number']}; it was renamed or copied over")
    arrays = {n: open_array(path, n, entry, MANIFEST) for n, entry in manifest["arrays"].items()}
    if len(arrays["indptr"]) - 1 != bounds[number + 1] - bounds[number]:
        raise FormatError(f"{path} is damaged: it has not the rows that {MANIFEST} says")
    return Part(
        outline(whole).with_source({"data": str(Path(folder).resolve())}),
        bounds,
        number,
        CSR(arrays["indptr"], arrays["indices"], arrays.get("weights")),
        _features(arrays, whole["features"]),
        arrays["labels"],
        Split(arrays["train"], arrays["val"], arrays["test"]),
    )


def _features(arrays: Mapping[str, AnyArray], width: int) -> FloatArray | csr_array:
    if "features" in arrays:
        return arrays["features"]
    parts = tuple(arrays[f"features_{part}"] for part in ("data", "indices", "indptr"))
    return csr_array(parts, shape=(len(arrays["indptr"]) - 1, width))


def outline(whole: Mapping[str, Any]) -> Graph:
    """A graph of the whole's shape, every array of which is one number repeated.

    For what goes by sizes and names: settings, messages, the run's folder.
    """
    n, classes = whole["nodes"], whole["classes"]
    sizes = whole["split"]
    if whole["multilabel"]:
        labels: AnyArray = np.broadcast_to(np.False_, (n, classes))
    else:
        labels = np.broadcast_to(np.int64(classes - 1), n)
    features: AnyArray | csr_array = np.broadcast_to(np.float32(0), (n, whole["features"]))
    if whole["sparse"]:
        features = csr_array((1, whole["features"]), dtype=np.float32)
    split = Split(*(np.broadcast_to(np.int64(0), sizes[name]) for name in ("train", "val", "test")))
    names = whole["class_names"]
    return Graph.trusted(
        indptr=np.broadcast_to(np.int64(0), n + 1),
        indices=np.broadcast_to(np.int32(0), whole["stored_edges"]),
        weights=None,
        features=features,
        labels=labels,
        split=split,
        class_names=None if names is None else tuple(names),
        directed=whole["directed"],
        name=whole["name"],
        stored_fingerprint=whole["fingerprint"],
    )


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(
            f"{path} is missing: this process needs that part of the graph; shard the store again, "
            "or copy the part here"
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path / MANIFEST} is not valid JSON: {error}") from None
    known = isinstance(manifest, dict) and manifest.get("kind") == KIND
    if not known or manifest.get("schema") != SCHEMA:
        raise FormatError(
            f"{path / MANIFEST} does not describe a part of schema {SCHEMA}; shard the store again"
        )
    missing = [key for key in ("number", "arrays", "whole") if key not in manifest]
    if missing:
        raise FormatError(f"{path / MANIFEST} lacks {missing[0]}; shard the store again")
    return manifest
