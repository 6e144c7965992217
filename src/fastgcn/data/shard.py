"""Sharding: a graph cut into ranges of nodes, each a folder that opens without the others.

A folder of shards holds `part-0`, `part-1`, ...; each has the `.npy` arrays of its own rows, as a
store has them, and a `part.json` that says which part of which whole it is (`data.parts`).
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn._version import __version__
from fastgcn.damage import check_all, check_rows
from fastgcn.data.layout import fingerprint, id_arrays, write_npy
from fastgcn.data.parts import KIND, MANIFEST, SCHEMA, is_sharded
from fastgcn.errors import InputError, nearest
from fastgcn.graph import Graph
from fastgcn.progress import progress
from fastgcn.types import AnyArray, IntArray

BALANCED_BY = ("train", "nodes", "edges")

# What a node weighs that is not trained on, where parts are balanced by training nodes.
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
    # Where one node weighs more than a part should, the next ones still get a node each.
    inner = np.maximum.accumulate(inner - np.arange(parts - 1)) + np.arange(parts - 1)
    inner = np.minimum(inner, n - parts + np.arange(1, parts))
    return np.concatenate([[0], inner, [n]]).astype(np.int64)


def shard(
    graph: Graph, parts: int, out: str | os.PathLike[str], *, by: str = "train", force: bool = False
) -> IntArray:
    """Write a graph as a folder of parts, in bounded memory; returns their bounds.

    The folder is written beside its place and renamed into it at the end.
    """
    out = Path(out)
    bounds = cut(graph, parts, by)
    if graph.labels is None:
        raise InputError(f"{graph.name} has no labels, and shards are there to be trained on")
    if out.exists() and not force:
        raise InputError(f"{out} exists already; choose another folder, or force it (--force)")
    if out.exists() and not is_sharded(out):
        raise InputError(f"{out} is not a folder of shards and will not be overwritten")
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
    try:
        folder.chmod(0o755)
        whole = _described(graph, bounds)
        # All at once, for ids of one part may look like numbers, and those of another not.
        ids = {} if graph.node_ids is None else id_arrays(graph.node_ids)
        with progress("Writing parts", parts, "parts") as advance:
            for number in range(parts):
                first, stop = whole["bounds"][number : number + 2]
                arrays = _arrays_of(graph, first, stop) | _ids_of(ids, first, stop)
                _write_part(arrays, whole, number, folder / f"part-{number}")
                advance(1)
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return bounds


def _described(graph: Graph, bounds: IntArray) -> dict[str, Any]:
    """What every part says of the whole."""
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
        "class_names": names,
        "feature_names": features,
        "split": {name: len(nodes) for name, nodes in graph.split.items()},
        "bounds": bounds.tolist(),
        "fingerprint": fingerprint(graph),
    }


def _write_part(
    arrays: Mapping[str, AnyArray], whole: Mapping[str, Any], number: int, folder: Path
) -> None:
    folder.mkdir()
    for name, array in arrays.items():
        write_npy(folder / f"{name}.npy", array)
    manifest = {
        "kind": KIND,
        "schema": SCHEMA,
        "fastgcn": __version__,
        "number": number,
        "arrays": {n: {"dtype": a.dtype.str, "shape": list(a.shape)} for n, a in arrays.items()},
        "whole": whole,
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def _arrays_of(graph: Graph, first: int, stop: int) -> dict[str, AnyArray]:
    """The rows of some nodes, as views where arrays are."""
    check_rows(graph.indptr, graph.indices, np.arange(first, stop))
    begin, end = int(graph.indptr[first]), int(graph.indptr[stop])
    check_all(graph.indices[begin:end], graph.n_nodes)
    assert graph.labels is not None
    arrays: dict[str, AnyArray] = {
        "indptr": graph.indptr[first : stop + 1] - begin,
        "indices": graph.indices[begin:end],
        "labels": graph.labels[first:stop],
    }
    if graph.weights is not None:
        arrays["weights"] = graph.weights[begin:end]
    if isinstance(graph.features, csr_array):
        sparse = graph.features
        a, b = int(sparse.indptr[first]), int(sparse.indptr[stop])
        arrays["features_indptr"] = sparse.indptr[first : stop + 1].astype(np.int64) - a
        arrays["features_indices"] = sparse.indices[a:b].astype(np.int32, copy=False)
        arrays["features_data"] = sparse.data[a:b]
    else:
        arrays["features"] = graph.features[first:stop]
    for name, nodes in graph.split.items():
        arrays[name] = nodes[(nodes >= first) & (nodes < stop)]
    return arrays


def _ids_of(ids: Mapping[str, AnyArray], first: int, stop: int) -> dict[str, AnyArray]:
    """The ids of some nodes, of those that a store has under these names."""
    if "node_ids_text" in ids:
        offsets = ids["node_ids_offsets"][first : stop + 1]
        text = ids["node_ids_text"][offsets[0] : offsets[-1]]
        return {"node_ids_text": text, "node_ids_offsets": offsets - offsets[0]}
    return {name: array[first:stop] for name, array in ids.items()}
