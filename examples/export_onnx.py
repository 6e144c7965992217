"""Write a network as ONNX, and apply the file with numpy and onnxruntime alone.

python examples/export_onnx.py     needs pip install 'fastgcn[export]'
"""

import json

import numpy as np
import onnxruntime

import fastgcn

graph = fastgcn.load("digits")
run = fastgcn.fit(graph, epochs=10, normalization="symmetric")
fastgcn.export(run, "model.onnx")
np.savez("graph.npz", x=graph.features, indptr=graph.csr.indptr, indices=graph.csr.indices)

# From here on, fastgcn is not needed: this may be another machine.
kept = np.load("graph.npz")
x, indptr, indices = kept["x"], kept["indptr"], kept["indices"].astype(np.int64)
degree = np.diff(indptr) + 1.0  # with the loop
session = onnxruntime.InferenceSession("model.onnx")
about = session.get_modelmeta().custom_metadata_map
classes = json.loads(about["class_names"])


def neighborhood(node: int, layers: int) -> dict[str, np.ndarray]:
    """What the outputs of a node depend on: the nodes within `layers` hops, and rows of Â."""
    near, inner = np.array([node]), np.array([node])
    for _ in range(layers):
        inner = near
        reached = [indices[indptr[v] : indptr[v + 1]] for v in near]
        near = np.unique(np.concatenate([near, *reached]))
    source = np.concatenate([np.append(indices[indptr[v] : indptr[v + 1]], v) for v in inner])
    target = np.repeat(inner, (degree[inner]).astype(int))
    weight = 1 / np.sqrt(degree[source] * degree[target])  # Â(v,u), symmetric
    edges = np.searchsorted(near, np.stack([source, target]))
    return {
        "x": x[near].astype(np.float32),
        "edge_index": edges.astype(np.int64),
        "edge_weight": weight.astype(np.float32),
        "nodes": np.searchsorted(near, [node]).astype(np.int64),
    }


for node in (0, 700, 1500):
    (chances,) = session.run(None, neighborhood(node, int(about["layers"])))
    apart = np.abs(chances - fastgcn.predict(run, graph, [node])).max()
    best = chances[0].argmax()
    print(f"node {node}: {classes[best]} ({chances[0, best]:.3f}), predict differs by {apart:.1e}")
    assert apart < 1e-5
