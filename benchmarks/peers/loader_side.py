"""A peer's side of the loaders' comparison: minibatches of DGL or PyG, as many as are asked for.

    PYTHON loader_side.py FOLDER --method dgl-neighbor|dgl-labor|pyg-neighbor [--batch 1024 ...]

It imports nothing of ours. FOLDER holds arrays (`benchmarks.peers.duels` writes them). For each
line on its input, a number, it makes so many minibatches with features and labels, and answers with
a line of JSON: the mean bytes of one, and the mean rows of its input.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--method", choices=("dgl-neighbor", "dgl-labor", "pyg-neighbor"))
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--fanout", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def dgl_batches(data: dict[str, Tensor], labels: Tensor, args: argparse.Namespace) -> Iterator[Any]:
    """(input rows, tensors of a minibatch), without end."""
    import dgl
    from dgl.dataloading import DataLoader, LaborSampler, NeighborSampler

    dgl.utils.set_num_threads(args.threads)
    dgl.seed(0)
    no_ids = torch.tensor([], dtype=torch.int64)
    graph = dgl.graph(("csr", (data["indptr"], data["indices"], no_ids)))
    graph.create_formats_()
    kind = NeighborSampler if args.method == "dgl-neighbor" else LaborSampler
    sampler, x = kind([args.fanout] * 2), data["features"]
    while True:
        for inputs, outputs, blocks in DataLoader(
            graph, data["train"], sampler, batch_size=args.batch, shuffle=True
        ):
            edges = [end for block in blocks for end in block.edges()]
            ids = [block.srcdata[dgl.NID] for block in blocks]
            yield len(inputs), [x[inputs], labels[outputs], outputs, *edges, *ids]


def pyg_batches(data: dict[str, Tensor], labels: Tensor, args: argparse.Namespace) -> Iterator[Any]:
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    counts = data["indptr"].diff()
    target = torch.repeat_interleave(torch.arange(len(counts)), counts)
    ends = torch.stack([data["indices"], target])
    graph = Data(x=data["features"], edge_index=ends, y=labels)
    loader = NeighborLoader(
        graph, [args.fanout] * 2, input_nodes=data["train"], batch_size=args.batch, shuffle=True
    )
    while True:
        for batch in loader:
            yield len(batch.n_id), [batch.x, batch.y, batch.edge_index, batch.n_id]


def answer(batches: Iterable[Any], count: int) -> None:
    rows = n_bytes = 0
    for inputs, tensors in islice(batches, count):
        rows += inputs
        n_bytes += sum(each.numel() * each.element_size() for each in tensors)
    print(json.dumps({"rows": rows / max(count, 1), "bytes": n_bytes / max(count, 1)}), flush=True)


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    names = ("indptr", "indices", "features", "train", "train_labels")
    data = {name: torch.from_numpy(np.load(args.folder / f"{name}.npy")) for name in names}
    labels = torch.full((len(data["features"]),), -1)
    labels[data["train"]] = data["train_labels"]
    make = pyg_batches if args.method == "pyg-neighbor" else dgl_batches
    batches = make(data, labels, args)
    for line in sys.stdin:
        answer(batches, int(line))


if __name__ == "__main__":
    main()
