"""A sampler of your own: t vertices drawn uniformly (the paper's Algorithm 1), tested and trained.

python examples/own_sampler.py
"""

import numpy as np
import torch

import fastgcn


class Uniform:
    """Draws t of n vertices, with replacement; a vertex drawn c times weighs c·n/t."""

    def __init__(self, adjacency: fastgcn.Adjacency, t: int) -> None:
        self.matrix, self.t = adjacency.to_scipy(), t

    def sample(self, batch: torch.Tensor, rng: object) -> list[fastgcn.Block]:
        n = self.matrix.shape[0]
        if isinstance(rng, torch.Generator):
            drawn = torch.randint(n, (self.t,), generator=rng).numpy()
        else:
            drawn = rng.integers(n, size=self.t)  # check_sampler uses numpy's generators too
        src, counts = np.unique(drawn, return_counts=True)
        weights = (counts * n / self.t).astype(np.float32)
        rows = (self.matrix[batch.numpy()][:, src] * weights).tocsr()
        csr = rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data
        return [fastgcn.Block.of_csr(batch, torch.from_numpy(src), csr)]


for name, adjacency in fastgcn.tiny_graphs().items():
    fastgcn.check_sampler(lambda adjacency: Uniform(adjacency, 3), adjacency, repetitions=500)
    print(f"{name}: the blocks fit, and nothing in them is biased")

graph = fastgcn.load("digits")
run = fastgcn.fit(
    graph,
    sampler=lambda adjacency: Uniform(adjacency, 200),
    preset="paper",
    hidden=32,
    samples=200,
    epochs=10,
)
print(f"digits: validation micro-F1 {run.metrics['val_micro_f1']:.3f} after 10 epochs")
