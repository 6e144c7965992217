"""DGL's side: GraphSAGE trained by DGL 2.1 in an environment of its own (`make peers-env`).

    PYTHON dgl_side.py FOLDER --method neighbor|labor|full [--hidden 256 --rate 0.003 ...]

It imports nothing of ours. FOLDER holds arrays (`benchmarks.peers.duels` writes them): the graph,
dense features, and the labels of training and validation nodes. It prints one line of JSON: seconds
since the first batch after each epoch, and the validation micro-F1 there.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import torch
from dgl.dataloading import DataLoader, LaborSampler, NeighborSampler
from dgl.nn import SAGEConv
from torch import Tensor, nn
from torch.nn import functional

FANOUTS = [10, 10]


class Sage(nn.Module):
    """Two layers of GraphSAGE with means, as in DGL's own examples."""

    def __init__(self, inputs: int, hidden: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.first = SAGEConv(inputs, hidden, "mean")
        self.second = SAGEConv(hidden, outputs, "mean")
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        x = self.first(blocks[0], x).relu()
        found: Tensor = self.second(blocks[1], self.dropout(x))
        return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--method", choices=("neighbor", "labor", "full"), default="neighbor")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--patience", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=240.0, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    dgl.utils.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    dgl.seed(args.seed)
    names = ("indptr", "indices", "features", "train", "train_labels", "val", "val_labels")
    data = {name: torch.from_numpy(np.load(args.folder / f"{name}.npy")) for name in names}
    no_ids = torch.tensor([], dtype=torch.int64)
    graph = dgl.graph(("csr", (data["indptr"], data["indices"], no_ids)))
    graph.create_formats_()
    x, val, val_labels = data["features"], data["val"], data["val_labels"]
    labels = torch.full((len(x),), -1)
    labels[data["train"]] = data["train_labels"]
    n_classes = int(max(data["train_labels"].max(), val_labels.max())) + 1
    model = Sage(x.shape[1], args.hidden, n_classes, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)
    batches: Iterable[Any] = [(None, data["train"], [graph, graph])]
    if args.method != "full":
        sampler = (NeighborSampler if args.method == "neighbor" else LaborSampler)(FANOUTS)
        batches = DataLoader(graph, data["train"], sampler, batch_size=args.batch, shuffle=True)

    clocks: list[float] = []
    scores: list[float] = []
    best, best_at, checking, stopped = (-1.0, 0.0), 0, 0.0, "epochs"
    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        model.train()
        for inputs, outputs, blocks in batches:
            logits = model(blocks, x)[outputs] if inputs is None else model(blocks, x[inputs])
            loss = functional.cross_entropy(logits, labels[outputs])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            if time.perf_counter() - start > args.limit:
                break  # in the middle of an epoch, which is validated all the same
        began = time.perf_counter()
        model.eval()
        with torch.no_grad():
            logits = model([graph, graph], x)[val]
            score = float((logits.argmax(1) == val_labels).float().mean())
            val_loss = float(functional.cross_entropy(logits, val_labels))
        checking += time.perf_counter() - began
        clocks.append(round(time.perf_counter() - start, 3))
        scores.append(round(score, 5))
        if (score, -val_loss) > best:
            best, best_at = (score, -val_loss), epoch
        if epoch - best_at >= args.patience or clocks[-1] > args.limit:
            stopped = "patience" if epoch - best_at >= args.patience else "limit"
            break
    found = {"seconds": clocks, "val_micro_f1": scores, "stopped": stopped}
    print(json.dumps(found | {"validation_seconds": round(checking, 3)}))


if __name__ == "__main__":
    main()
