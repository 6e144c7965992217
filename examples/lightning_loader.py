"""A LightningModule whose training data come from a `LayerLoader`.

pip install pytorch-lightning && python examples/lightning_loader.py
"""

import pytorch_lightning as lightning
import torch
from torch import Tensor, nn
from torch_geometric.nn import GraphConv

import fastgcn

graph = fastgcn.load("digits")


def loader(part: str, sampler: str) -> fastgcn.LayerLoader:
    return fastgcn.LayerLoader(
        graph, (200, 200), 128, nodes=part, sampler=sampler, normalization="neighbors",
        shuffle=part == "train",
    )  # fmt: skip


class Network(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        sizes = (graph.n_features, 64, graph.n_classes)
        self.convs = nn.ModuleList(map(GraphConv, sizes[:-1], sizes[1:]))

    def forward(self, batch: fastgcn.LayerBatch) -> Tensor:
        h = batch.x
        for conv, block in zip(self.convs, batch.blocks, strict=True):
            h = fastgcn.convolve(conv, h.relu() if conv is self.convs[1] else h, block)
        return h

    def training_step(self, batch: fastgcn.LayerBatch, _: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch), batch.y)

    def validation_step(self, batch: fastgcn.LayerBatch, _: int) -> None:
        right = (self(batch).argmax(1) == batch.y).float().mean()
        self.log("val_accuracy", right, batch_size=batch.batch_size)

    def train_dataloader(self) -> fastgcn.LayerLoader:
        return loader("train", "ladies")

    def val_dataloader(self) -> fastgcn.LayerLoader:
        return loader("val", "full")  # all neighbours: validation is exact

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003)


lightning.seed_everything(0)
trainer = lightning.Trainer(max_epochs=5, logger=False, enable_checkpointing=False)
trainer.fit(Network())
print(f"validation accuracy {float(trainer.callback_metrics['val_accuracy']):.3f}")
