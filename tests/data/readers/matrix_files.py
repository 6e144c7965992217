"""Writers of the formats that are made of numpy and scipy files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, csr_matrix, save_npz, triu

from fastgcn import Graph
from fastgcn.data.readers.matrices import GRAPHSAINT, NPZ_FOLDER, REDDIT_DGL, REDDIT_FASTGCN
from tests.data.readers.toy import adjacency, write_trio


def write_fastgcn(folder: Path, graph: Graph) -> Path:
    arrays: dict[str, Any] = {"feats": graph.features}
    assert graph.labels is not None
    for part, ids in graph.split.items():
        arrays |= {f"{part}_index": ids, f"y_{part}": graph.labels[ids]}
    np.savez(folder / "reddit.npz", **arrays)
    save_npz(folder / "reddit_adj.npz", coo_array(triu(adjacency(graph))))
    return folder


def write_dgl(folder: Path, graph: Graph) -> Path:
    types = np.zeros(8, np.int64)
    for kind, (_, ids) in enumerate(graph.split.items(), start=1):
        types[ids] = kind
    arrays: dict[str, Any] = {"feature": graph.features, "label": graph.labels}
    np.savez(folder / "reddit_data.npz", node_ids=np.arange(8), node_types=types, **arrays)
    save_npz(folder / "reddit_graph.npz", coo_array(adjacency(graph)))
    return folder


def write_saint(folder: Path, graph: Graph) -> Path:
    save_npz(folder / "adj_full.npz", csr_matrix(adjacency(graph)).astype(bool))
    np.save(folder / "feats.npy", np.asarray(graph.features, np.float64))
    roles = {name[:2]: ids.tolist() for name, ids in graph.split.items()}
    (folder / "role.json").write_text(json.dumps(roles))
    assert graph.labels is not None
    labels = {str(node): label.astype(int).tolist() for node, label in enumerate(graph.labels)}
    (folder / "class_map.json").write_text(
        json.dumps({node: label for node, label in labels.items() if label != -1})
    )
    return folder


def write_benchmark(folder: Path, graph: Graph, **changes: Any) -> Path:
    arrays: dict[str, Any] = {"labels": graph.labels}
    for what, matrix in (("adj", adjacency(graph)), ("attr", csr_array(graph.features))):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{what}_{part}"] = getattr(matrix, part)
    arrays["node_names"] = np.array(["a", None] * 4, dtype=object)
    arrays["class_names"] = np.array([f"topic {c}" for c in range(3)], dtype=object)
    arrays |= changes
    file = folder / "toy_photo.npz"
    np.savez(file, **{name: value for name, value in arrays.items() if value is not None})
    return file


READS: dict[str, tuple[Callable[[Path, Graph], Path], Callable[..., Graph]]] = {
    "reddit-fastgcn": (write_fastgcn, REDDIT_FASTGCN.read),
    "reddit-dgl": (write_dgl, REDDIT_DGL.read),
    "graphsaint": (write_saint, GRAPHSAINT.read),
    "npz": (write_trio, NPZ_FOLDER.read),
}
