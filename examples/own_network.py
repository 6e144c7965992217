"""A network of your own in plain torch, trained on sampled layers and evaluated exactly.

python examples/own_network.py
"""

import torch
from torch import Tensor, nn

import fastgcn


class Layer(nn.Module):
    """W·(Mh)(v) + R·h(v), gated by the node's own row."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.neighbors, self.own = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)
        self.gate = nn.Linear(inputs, outputs)

    def forward(self, h: Tensor, block: fastgcn.EdgeBlock) -> Tensor:
        own = block.own(h)  # the rows of the nodes themselves
        mixed = block.mix(h)  # the weighted sum over their drawn neighbours
        return self.own(own) + torch.sigmoid(self.gate(own)) * self.neighbors(mixed)


class Network(nn.Module):
    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, sizes[:-1], sizes[1:]))

    def layer(self, number: int, h: Tensor, block: fastgcn.EdgeBlock) -> Tensor:
        h = self.layers[number](h, block)
        return h if number + 1 == len(self.layers) else h.relu()

    def forward(self, batch: fastgcn.LayerBatch) -> Tensor:
        h = batch.x
        for number, block in enumerate(batch.blocks):
            h = self.layer(number, h, block)
        return h


torch.manual_seed(0)
graph = fastgcn.load("digits")
loader = fastgcn.LayerLoader(graph, samples=(200, 200), batch_size=128)
model = Network(graph.n_features, 64, graph.n_classes)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
labels = torch.from_numpy(graph.labels)

for epoch in range(5):
    for batch in loader:
        loss = nn.functional.cross_entropy(model(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = loader.infer(model.layer, nodes="val").argmax(1)
    right = (found == labels[graph.split.val]).float().mean()
    print(f"epoch {epoch}: loss {loss.item():.3f}, validation accuracy {right.item():.3f}")
