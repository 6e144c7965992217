"""ÂX and the full network on the device against what they must move and multiply."""

import numpy as np
import torch

from benchmarks.results import Record
from benchmarks.speed.device.timing import bandwidth, cuda, device_seconds
from benchmarks.speed.shown import Claim, Shown, short
from fastgcn.backends.gpu.forward import forward
from fastgcn.backends.gpu.matrix import DeviceEdges, WholeBlock, empty_rows, upload_rows
from fastgcn.data.load import load
from fastgcn.features.store import NodeFeatures
from fastgcn.model import GCN
from fastgcn.report.page import Table
from fastgcn.train.presets import paper_preset


def measure_device_products(*, data: str, rounds: int) -> Record:
    """Seconds of ÂX on the training graph and of the full network over all nodes, X and edges
    on the device.

    Two floors of a sparse product by the bandwidth of a large copy: a row read for each entry,
    and each row read once, which takes a cache that holds them all. The network's: the first
    kind of floor for both its sparse products in the cheaper order, Â(XW), and the times of its
    dense products alone.
    """
    device = cuda()
    graph, config = load(data), paper_preset(data)
    edges = DeviceEdges.of(graph.csr, device)
    x = empty_rows(graph.n_nodes, graph.n_features, torch.float32, device)
    upload_rows(NodeFeatures(graph.features), x)
    train = torch.from_numpy(np.sort(graph.split.train)).to(device)
    trained = edges.induced(train).normalized(config.normalization)
    own = empty_rows(len(train), graph.n_features, torch.float32, device)
    own.copy_(x[train])
    out = torch.empty_like(own)
    model = GCN([graph.n_features, *config.hidden_sizes, graph.n_classes]).to(device)
    whole = WholeBlock.of(edges.normalized(config.normalization))
    w0, w1 = (layer.weight.detach() for layer in model.convolutions)
    hidden = torch.rand((graph.n_nodes, w0.shape[1]), device=device)
    speed = bandwidth(rounds)
    entries = len(whole.matrix.indices)
    gathered = 4 * entries * (w1.shape[0] + w1.shape[1]) + 2 * 8 * entries
    written = 4 * graph.n_nodes * (w1.shape[0] + w1.shape[1])
    return {
        "bandwidth": speed,
        "propagation": {
            "seconds": device_seconds(lambda: trained.times(own, out), rounds),
            "entries": len(trained.indices),
            "gathered": 4 * len(trained.indices) * (own.shape[1] + 2) + 4 * own.numel(),
            "once": 8 * own.numel() + 8 * len(trained.indices),
        },
        "inference": {
            "seconds": device_seconds(lambda: forward(model, [whole, whole], x), rounds),
            "gemms": device_seconds(lambda: (x @ w0, hidden @ w1), rounds),
            "gathered": gathered + written,
            "nodes": graph.n_nodes,
        },
    }


def show_device_products(records: dict[str, Record]) -> Shown:
    (found,) = records.values()
    speed, mixing, whole = found["bandwidth"], found["propagation"], found["inference"]
    floor, once = mixing["gathered"] / speed, mixing["once"] / speed
    network = whole["gemms"] + whole["gathered"] / speed
    claims = [
        Claim(
            what="ÂX / reading a row for each entry", value=mixing["seconds"] / floor, at_most=1.1
        ),
        Claim(what="ÂX / reading every row once", value=mixing["seconds"] / once),
        Claim(
            what="all nodes' predictions / the same floor and the dense products",
            value=whole["seconds"] / network,
            at_most=1.3,
        ),
    ]
    rows = [
        ("ÂX", short(1e3 * mixing["seconds"]), short(1e3 * floor), short(1e3 * once)),
        ("all nodes", short(1e3 * whole["seconds"]), short(1e3 * network), "–"),
    ]
    head = ("", "ms", "a row an entry, ms", "each row once, ms")
    caption = f"Products at {speed / 1e12:.2f} TB/s, the rate of a large copy in the same run"
    return Shown(claims, [Table(head, rows, caption)])
