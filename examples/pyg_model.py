"""Convolutions of PyG on sampled layers: a GraphSAGE, from a PyG `Data`.

python examples/pyg_model.py
"""

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

import fastgcn


class Sage(nn.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(inputs, hidden), SAGEConv(hidden, outputs)])
        self.dropout = nn.Dropout(0.2)

    def layer(self, number: int, h: Tensor, block: fastgcn.EdgeBlock) -> Tensor:
        # In place of self.convs[number](h, edge_index): the drawn edges keep their weights.
        h = fastgcn.convolve(self.convs[number], self.dropout(h), block)
        return h if number == 1 else h.relu()

    def forward(self, batch: fastgcn.LayerBatch) -> Tensor:
        h = batch.x
        for number, block in enumerate(batch.blocks):
            h = self.layer(number, h, block)
        return h


torch.manual_seed(0)
data = fastgcn.load("digits").to_pyg()  # any Data with x, y, edge_index and masks
loader = fastgcn.LayerLoader(
    data, samples=(200, 200), batch_size=128, normalization="neighbors", seed=0
)
model = Sage(data.num_features, 64, int(data.y.max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

for _ in range(5):
    for batch in loader:
        loss = nn.functional.cross_entropy(model(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

found = loader.infer(model.layer).argmax(1)  # exact, layer by layer over all nodes
right = (found == data.y)[data.test_mask].float().mean()
print(f"test accuracy {right.item():.3f}")
