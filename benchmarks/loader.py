"""`LayerLoader` beside the loaders of DGL and PyG, and the bias of each operator's weights.

* Minibatches a second: ours and a peer take turns, each on two threads, with features and labels.
* Validation score over seconds: two layers of GraphSAGE, the same widths, batches and rate.
* Bias: one layer of each operator on Cora, the mean of many samples less the exact layer.

The peers run in environments of their own: `FASTGCN_DGL_PYTHON` and `FASTGCN_PYG_PYTHON` name them.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, hstack
from torch import Tensor, nn

from benchmarks.pages import Claim, Experiment, claims_table, line_figure, short
from benchmarks.peers.duels import ENVIRONMENT, dgl_curve, open_graph, reached, write_arrays
from benchmarks.processes import fresh
from benchmarks.results import Measurement, Record, Results
from benchmarks.timing import Side, medians, seconds_in_turns, spread
from fastgcn.errors import InputError
from fastgcn.features.sparse import InputRows, SparseMatrix
from fastgcn.features.store import DenseStore, FeatureStore
from fastgcn.graph.adjacency import normalize
from fastgcn.graph.graph import Graph
from fastgcn.loader import EdgeBlock, LayerBatch, LayerLoader, convolve
from fastgcn.memory import shown_bytes
from fastgcn.report.page import Content, Table
from fastgcn.report.plots import Series

THREADS = 2
ENVIRONMENTS = {"dgl": ENVIRONMENT, "pyg": "FASTGCN_PYG_PYTHON"}
METHODS = {
    "dgl-neighbor": "DGL NeighborSampler",
    "dgl-labor": "DGL LaborSampler",
    "pyg-neighbor": "PyG NeighborLoader",
}
DATA = ("wordnet", "two-hop-sim/58000")
BATCH, FANOUT, HIDDEN, RATE, DROPOUT = 1024, 10, 256, 0.01, 0.5

# Vertices that ours draws a layer: the number of nodes that a batch of 1,024 reads grows with it.
SPEED_SAMPLES = 400
SCORE_SAMPLES = 8192  # of the second layer; the peers draw 10 neighbours for each of 1,024 rows
ROUNDS, CHUNK_SECONDS = 5, 1.5
LIMIT = 100.0  # seconds of a training

CODE = ("fastgcn.loader.loader", "benchmarks.loader", "benchmarks.peers.loader_side")


# Minibatches a second


@contextmanager
def peer_side(folder: Path, method: str) -> Iterator[tuple[Side, Record]]:
    """A side that makes minibatches in another process, and what it last said of them."""
    variable = ENVIRONMENTS[method.split("-")[0]]
    python = os.environ.get(variable)
    if not python:
        raise InputError(f"{variable} must name the Python that has {METHODS[method]}")
    script = Path(__file__).parent / "peers" / "loader_side.py"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said: Record = {}
    with subprocess.Popen(
        [python, str(script), str(folder), "--method", method, "--batch", str(BATCH),
         "--fanout", str(FANOUT), "--threads", str(THREADS)],
        env=clean | {"OMP_NUM_THREADS": str(THREADS), "DGLBACKEND": "pytorch"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None

        def work(count: int) -> None:
            asked.write(f"{count}\n")
            asked.flush()
            if not (line := answers.readline()):
                raise InputError(f"{METHODS[method]} failed")
            if count:
                said.update(json.loads(line))

        yield work, said
        asked.close()


def our_side(graph: Graph, samples: int, workers: int = 1) -> tuple[Side, Record]:
    """Batches of the default sampler for GraphSAGE; features are made dense as for the peers."""
    torch.set_num_threads(THREADS)
    loader = LayerLoader(
        graph, (samples, samples), BATCH, normalization="neighbors", num_workers=workers
    )

    def endless() -> Iterator[LayerBatch]:
        while True:
            yield from loader

    batches, said = endless(), dict[str, Any]()

    def work(count: int) -> None:
        made = [(len(each.n_id), each.nbytes) for each in islice(batches, count)]
        if made:
            said.update(zip(("rows", "bytes"), np.mean(made, axis=0).tolist(), strict=True))

    return work, said


def speeds(data: str, method: str) -> Record:
    """Seconds a minibatch of ours and of a peer, in turns."""
    graph = open_graph(data)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_arrays(graph, Path(folder))
        peer, theirs = stack.enter_context(peer_side(Path(folder), method))
        ours, mine = our_side(graph, SPEED_SAMPLES)
        found = seconds_in_turns(
            {"ours": ours, "peer": peer}, rounds=ROUNDS, chunk_seconds=CHUNK_SECONDS
        )
    middle = medians(found)
    return {
        name: {"seconds": middle[name], "spread": spread(found[name]), **said}
        for name, said in (("ours", mine), ("peer", theirs))
    }


def _speed(data: str, method: str) -> Measurement:
    key = {"experiment": "loader-speed", "data": data, "peer": method, "batch": BATCH}
    key |= {"fanout": FANOUT, "samples": SPEED_SAMPLES, "threads": THREADS}
    label = f"minibatches of ours and {METHODS[method]} on {data}"
    return Measurement(label, key, partial(speeds, data, method), CODE)


def speed_parts(results: Results) -> list[Content | None]:
    """A row a comparison, and the least of all ratios beside the bound."""
    rows, ratios = [], []
    for data in DATA:
        for method, name in METHODS.items():
            if (found := results.get(_speed(data, method).key)) is None:
                continue
            ours, peer = found["ours"], found["peer"]
            ratios.append(peer["seconds"] / ours["seconds"])
            rows.append(
                (data, name, short(1 / ours["seconds"]), short(1 / peer["seconds"]),
                 short(ratios[-1]), short(round(ours["rows"])), short(round(peer["rows"])),
                 shown_bytes(ours["bytes"]), shown_bytes(peer["bytes"]))
            )  # fmt: skip
    if not rows:
        return []
    head = ("data", "peer", "ours, minibatches a second", "the peer's", "ratio", "input rows, ours",
            "the peer's", "bytes, ours", "the peer's")  # fmt: skip
    caption = (
        f"Minibatches of {BATCH:,} nodes, two layers, two threads: ours draws {SPEED_SAMPLES} "
        f"vertices a layer, the peers {FANOUT} neighbours a node"
    )
    claim = Claim(what="least ratio of minibatches a second", value=min(ratios), at_least=5)
    return [Table(head, rows, caption), claims_table([claim], "Minibatches a second")]


# Validation score over seconds


class Sage(nn.Module):
    """Two layers of GraphSAGE with means, as DGL's side has them.

    The first layer reads [MX | X], so it is a linear map, and only the second one is sampled.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(2 * inputs, HIDDEN)
        self.neighbors, self.own = (
            nn.Linear(HIDDEN, outputs),
            nn.Linear(HIDDEN, outputs, bias=False),
        )
        self.dropout = nn.Dropout(DROPOUT)

    def hidden(self, x: InputRows) -> Tensor:
        return (x @ self.first.weight.T + self.first.bias).relu()

    def second(self, _: int, h: Tensor, block: EdgeBlock) -> Tensor:
        h = self.dropout(h)
        made: Tensor = self.neighbors(block.mix(h)) + self.own(block.own(h))
        return made


def both_inputs(graph: Graph) -> tuple[FeatureStore, bool]:
    """Rows of [MX | X], and whether they are sparse."""
    matrix, x = normalize(graph, "neighbors").to_scipy(), graph.features
    if isinstance(x, np.ndarray):
        return DenseStore(np.concatenate([matrix @ x, x], axis=1)), False
    return SparseMatrix.of(csr_array(hstack([matrix @ x, x]))), True


def our_curve(data: str, samples: int, limit: float) -> Record:
    """Seconds and the validation score after each epoch; the clock starts before MX is computed."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    graph = open_graph(data)
    next(iter(LayerLoader(graph, (samples,), BATCH, normalization="neighbors")))  # compiles kernels
    start = time.perf_counter()
    inputs, sparse = both_inputs(graph)
    loader = LayerLoader(
        graph, (samples,), BATCH, normalization="neighbors", features=inputs, sparse=sparse
    )
    model = Sage(graph.n_features, graph.n_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    known = torch.from_numpy(np.asarray(graph.labels)[graph.split.val])
    seconds: list[float] = []
    scores: list[float] = []
    while not seconds or seconds[-1] < limit:
        for batch in loader:
            assert batch.y is not None
            logits = model.second(0, model.hidden(batch.x), batch.blocks[0])
            loss = nn.functional.cross_entropy(logits, batch.y)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        with torch.no_grad():
            parts = range(0, graph.n_nodes, 4 * BATCH)
            ends = [(at, min(at + 4 * BATCH, graph.n_nodes)) for at in parts]
            hidden = torch.cat([model.hidden(inputs.between(*each)) for each in ends])
        found = loader.infer(model.second, nodes="val", features=hidden).argmax(1)
        seconds.append(round(time.perf_counter() - start, 3))
        scores.append(round(float((found == known).float().mean()), 5))
    return {"seconds": seconds, "val_micro_f1": scores}


def duel(data: str, method: str, limit: float) -> Record:
    """DGL until the limit, then ours; each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_arrays(open_graph(data), Path(folder))
        peer = dgl_curve(Path(folder), method.removeprefix("dgl-"), HIDDEN, RATE, limit)
    return {"peer": peer, "ours": fresh(our_curve, data, SCORE_SAMPLES, limit / 2)}


def _duel(data: str, method: str) -> Measurement:
    key = {"experiment": "loader-score", "data": data, "peer": method, "batch": BATCH}
    key |= {"hidden": HIDDEN, "rate": RATE, "samples": SCORE_SAMPLES, "limit": LIMIT}
    label = f"a training with ours and {METHODS[method]} on {data}"
    code = (*CODE, "benchmarks.peers.dgl_side")
    return Measurement(label, key, partial(duel, data, method, LIMIT), code)


_DUELS = tuple(method for method in METHODS if method.startswith("dgl"))


def score_parts(results: Results) -> list[Content | None]:
    """How soon the peer's best score is reached, and curves."""
    rows, ratios = [], []
    pictures: list[Content | None] = []
    for data in DATA:
        series: list[Series] = []
        for method in _DUELS:
            if (found := results.get(_duel(data, method).key)) is None:
                continue
            best = max(found["peer"]["val_micro_f1"])
            theirs, ours = reached(found["peer"], best) or 0.0, reached(found["ours"], best)
            ratios.append(float("inf") if ours is None else ours / theirs)
            rows.append(
                (data, METHODS[method], f"{best:.4f}", f"{theirs:.1f}", short(ours),
                 short(None if ours is None else ours / theirs),
                 f"{max(found['ours']['val_micro_f1']):.4f}")
            )  # fmt: skip
            for name, curve in (("fastgcn", found["ours"]), (METHODS[method], found["peer"])):
                if name not in [each.label for each in series]:
                    score = np.maximum.accumulate(curve["val_micro_f1"]).tolist()
                    series.append(Series(name, curve["seconds"], score))
        about = f"{data}: best validation micro-F1 so far over seconds, GraphSAGE, two threads"
        pictures.append(
            line_figure(series, data, about, "seconds", "validation micro-F1", logs="x")
        )
    if not rows:
        return []
    head = ("data", "peer", "its best score", "its seconds", "ours, seconds to it", "ours / its",
            "our best score")  # fmt: skip
    caption = (
        f"GraphSAGE of width {HIDDEN}, batches of {BATCH:,}, rate {RATE:g}; DGL has "
        f"{LIMIT:.0f} seconds, ours half of them, an exact first layer and {SCORE_SAMPLES:,} "
        "vertices for the second"
    )
    claim = Claim(what="largest ours / its", value=max(ratios), at_most=0.5)
    return [Table(head, rows, caption), claims_table([claim], "Time to the peer's best"), *pictures]


# Bias

_BIAS_T, _REPETITIONS = (100, 400, 1600), 200
_OPERATORS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "SAGEConv": ({"normalization": "neighbors"}, {}),
    "SAGEConv, self-normalised": (
        {"normalization": "neighbors", "weights": "self-normalised"}, {}
    ),
    "GCNConv": ({"normalization": "symmetric"}, {"normalize": False}),
    "GATConv": ({"normalization": "none", "self_loops": True}, {"add_self_loops": False}),
    "GATv2Conv": ({"normalization": "none", "self_loops": True}, {"add_self_loops": False}),
    "SAGEConv without weights": ({"normalization": "neighbors"}, {}),
    "GATConv without weights": (
        {"normalization": "none", "self_loops": True}, {"add_self_loops": False}
    ),
}  # fmt: skip


@cache
def _cora() -> Graph:
    return open_graph("cora")


def bias(name: str, t: int) -> Record:
    """Relative bias and error of a layer on 512 rows of Cora, over many samples of t vertices.

    The squared bias is that of the mean over the samples, less the variance of that mean.
    """
    from torch_geometric import nn as operators

    torch.manual_seed(0)
    graph, (options, further) = _cora(), _OPERATORS[name]
    kind = name.split(",")[0].split(" ")[0]
    conv = getattr(operators, kind)(graph.n_features, 16, **further).eval()
    nodes = np.random.default_rng(0).permutation(graph.n_nodes)[:512]
    common = {"nodes": nodes, "shuffle": False, "labels": False, **options}

    def apply(batch: LayerBatch) -> Tensor:
        (block,) = batch.blocks
        if "without" in name:
            x = (batch.x, block.own(batch.x))
            return conv(x, block.edge_index)  # type: ignore[no-any-return]
        return convolve(conv, batch.x, block)

    with torch.no_grad():
        (exact,) = LayerLoader(graph, (1,), 512, sampler="full", **common)
        wanted = convolve(conv, exact.x, exact.blocks[0]).double()
        loader = LayerLoader(graph, (t,), 512, **common)
        found = torch.stack([apply(each) for _ in range(_REPETITIONS) for each in loader]).double()
    size = wanted.square().sum()
    noise = found.var(0).sum() / _REPETITIONS
    squared = ((found.mean(0) - wanted).square().sum() - noise).clamp_min(0)
    error = (found - wanted).square().sum(dim=(1, 2)).mean()
    return {"bias": float((squared / size).sqrt()), "error": float((error / size).sqrt())}


def _bias(name: str, t: int) -> Measurement:
    key = {"experiment": "loader-bias", "operator": name, "t": t, "samples": _REPETITIONS}
    label = f"bias of {name}, {t} vertices"
    return Measurement(label, key, partial(bias, name, t), ("benchmarks.loader",))


def bias_parts(results: Results) -> list[Content | None]:
    rows = []
    for name in _OPERATORS:
        found = [results.get(_bias(name, t).key) for t in _BIAS_T]
        cells = [each for each in found if each is not None]
        if len(cells) == len(_BIAS_T):
            percent = [f"{100 * r['bias']:.1f} / {100 * r['error']:.1f}" for r in cells]
            rows.append((name, *percent))
    if not rows:
        return []
    head = ("operator", *(f"t = {t:,}" for t in _BIAS_T))
    caption = (
        "One layer on 512 rows of Cora: bias / error in percent of the exact layer's size, over "
        f"{_REPETITIONS} samples"
    )
    return [Table(head, rows, caption)]


def experiments() -> list[Experiment]:
    """Speeds and scores of peers whose environments are named, and the bias."""

    def known(methods: Sequence[str]) -> list[str]:
        return [m for m in methods if os.environ.get(ENVIRONMENTS[m.split("-")[0]])]

    def plan_speed(_: Results) -> Iterator[Measurement]:
        return (_speed(data, method) for data in DATA for method in known(tuple(METHODS)))

    def plan_score(_: Results) -> Iterator[Measurement]:
        return (_duel(data, method) for data in DATA for method in known(_DUELS))

    def plan_bias(_: Results) -> Iterator[Measurement]:
        return (_bias(name, t) for name in _OPERATORS for t in _BIAS_T)

    return [
        Experiment(name="loader-bias", title="Bias", plan=plan_bias, show=bias_parts),
        Experiment(
            name="loader-speed", title="Minibatches a second", plan=plan_speed, show=speed_parts
        ),
        Experiment(name="loader-score", title="Score over time", plan=plan_score, show=score_parts),
    ]
