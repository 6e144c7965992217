"""ÂX against scipy's product, and full inference against its own products."""

from functools import partial

import numpy as np

from benchmarks.results import Record
from benchmarks.speed.shown import Claim, Shown, short
from benchmarks.speed.turns import Side, medians, on_threads, repeated, seconds_in_turns
from fastgcn.arrays import FloatArray
from fastgcn.backends.data import training_graph
from fastgcn.data.load import load
from fastgcn.features.propagate import propagate
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.adjacency import normalize
from fastgcn.infer.predict import predict
from fastgcn.kernels.products import sparse_times_dense
from fastgcn.machine import thread_count
from fastgcn.model import GCN
from fastgcn.report.page import Table
from fastgcn.train.presets import paper_preset

SCIPY, ONE, ALL = "scipy, 1 thread", "fastgcn, 1 thread", "fastgcn, all threads"

WIDE, NARROW, GEMMS, LAST = "ÂX", "Â(XW0)", "XW0 and HW1", "Â(HW1)"


def measure_propagation(*, data: str, rounds: int) -> Record:
    """Seconds of ÂX on the training graph: what training computes once, and scipy's product.

    Ours is `propagate`, from the graph's features as they lie in the store. scipy multiplies
    the same Â by the training nodes' features, gathered before and in memory.
    """
    graph, config = load(data), paper_preset(data)
    trained = training_graph(graph, config)
    nodes, adjacency = trained.nodes, trained.adjacency
    assert nodes is not None
    rows = NodeFeatures(graph.features, config.feature_scaling, nodes)
    matrix, dense = adjacency.to_scipy(), rows.between(0, len(nodes)).numpy()
    ours = partial(propagate, adjacency, rows)
    sides: dict[str, Side] = {
        SCIPY: repeated([lambda: matrix @ dense]),
        ONE: on_threads(1, repeated([ours])),
        ALL: on_threads(0, repeated([ours])),
    }
    found = seconds_in_turns(sides, rounds=rounds, chunk_seconds=0, what="Timing ÂX")
    return {"entries": len(adjacency.values), "width": rows.width, "seconds": medians(found)}


def show_propagation(records: dict[str, Record]) -> Shown:
    (found,) = records.values()
    seconds = found["seconds"]
    claims = [
        Claim(what="ÂX on one thread / scipy's", value=seconds[ONE] / seconds[SCIPY], at_most=1.2),
        Claim(what="ÂX on one thread / on all", value=seconds[ONE] / seconds[ALL], at_least=1.8),
    ]
    rows = [(name, short(seconds[name])) for name in (SCIPY, ONE, ALL)]
    caption = f"ÂX: {found['entries']:,} entries times {found['width']} columns"
    return Shown(claims, [Table(("", "s"), rows, caption)])


def measure_inference(*, data: str, rounds: int) -> Record:
    """Seconds of `predict` for all nodes by the full network, and of its products alone.

    The products: ÂX, the dense products XW0 and HW1 of all nodes, and Â times a matrix as
    wide as there are classes. Beside these the first sparse product in the cheaper order,
    Â(XW0), which is as wide as the hidden layer. Sparse products by our kernel, dense ones by
    numpy's BLAS, on all threads. What inference costs does not depend on the weights, which
    are random.
    """
    graph, config = load(data), paper_preset(data)
    sizes = [graph.n_features, *config.hidden_sizes, graph.n_classes]
    model = GCN(sizes)
    w0, w1 = (layer.weight.detach().numpy() for layer in model.convolutions)
    adjacency = normalize(graph, config.normalization)
    csr = adjacency.indptr, adjacency.indices, adjacency.values
    x = NodeFeatures(graph.features).between(0, graph.n_nodes).numpy()
    hidden, scores = (np.ones((graph.n_nodes, width), np.float32) for width in sizes[1:])

    def times(dense: FloatArray) -> Side:
        return repeated([partial(sparse_times_dense, *csr, dense)])

    def gemms(count: int) -> None:
        for _ in range(count):
            np.dot(x, w0)
            np.dot(hidden, w1)

    sides: dict[str, Side] = {
        "predict": repeated([partial(predict, model, graph)]),
        WIDE: times(x),
        NARROW: times(hidden),
        GEMMS: gemms,
        LAST: times(scores),
    }
    with thread_count(0):
        found = seconds_in_turns(sides, rounds=rounds, chunk_seconds=0, what="Timing inference")
    return {"nodes": graph.n_nodes, "seconds": medians(found)}


def show_inference(records: dict[str, Record]) -> Shown:
    (found,) = records.values()
    seconds = found["seconds"]
    floor = seconds[WIDE] + seconds[GEMMS] + seconds[LAST]
    cheaper = seconds[NARROW] + seconds[GEMMS] + seconds[LAST]
    claims = [
        Claim(
            what=f"all nodes / ({WIDE} + {GEMMS} + {LAST})",
            value=seconds["predict"] / floor,
            at_most=1.5,
        ),
        Claim(
            what=f"all nodes / ({NARROW} + {GEMMS} + {LAST}), the cheaper order",
            value=seconds["predict"] / cheaper,
        ),
    ]
    rows = [(name, short(value)) for name, value in seconds.items()]
    return Shown(claims, [Table(("", "s"), rows, f"Inference for all {found['nodes']:,} nodes")])
