"""Predictions for nodes that came after training, from their features and edges alone.

python examples/new_nodes.py
"""

import numpy as np

import fastgcn

graph = fastgcn.load("digits")  # 1,797 pictures of digits, joined to similar ones
run = fastgcn.fit(graph, epochs=20)

# Three new pictures: noisy copies of nodes 10, 20 and 30. Each has edges to a few old ones.
rng = np.random.default_rng(0)
originals = np.array([10, 20, 30])
features = graph.features[originals] + rng.normal(0, 0.05, (3, graph.n_features)).astype(np.float32)
n = graph.n_nodes  # old nodes are 0..n-1, the new ones n, n+1, n+2
source = np.repeat([n, n + 1, n + 2], 2)
target = np.stack([originals, graph.csr.indices[graph.csr.indptr[originals]]], axis=1).ravel()

chances = fastgcn.predict_new(run, graph, features=features, source=source, target=target)
for original, row in zip(originals, chances, strict=True):
    truth, found = graph.labels[original], row.argmax()
    print(f"copy of node {original}: digit {truth}, predicted {found} ({row[found]:.2f})")
rows = fastgcn.embed_new(run, graph, features=features, source=source, target=target)
print("their hidden rows:", rows.shape)
