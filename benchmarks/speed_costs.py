"""The cost of ÂX, of full inference, of memory, and of starting."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.pages import Claim, short
from benchmarks.processes import fresh, train_once
from benchmarks.results import Record
from benchmarks.timing import (
    Side,
    medians,
    on_threads,
    repeated,
    seconds_in_turns,
    wall_clock,
)
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
from fastgcn.report.page import Content, Table
from fastgcn.train.presets import paper_preset

Records = dict[str, Record]

# ÂX against scipy's product, and full inference against its own products.

SCIPY, ONE, EVERY = "scipy, 1 thread", "fastgcn, 1 thread", "fastgcn, all threads"
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
    ours = repeated([partial(propagate, adjacency, rows)])
    sides: dict[str, Side] = {
        SCIPY: repeated([lambda: matrix @ dense]),
        ONE: on_threads(1, ours),
        EVERY: on_threads(0, ours),
    }
    found = seconds_in_turns(sides, rounds=rounds, chunk_seconds=0, what="Timing ÂX")
    return {"entries": len(adjacency.values), "width": rows.width, "seconds": medians(found)}


def show_propagation(records: Records) -> tuple[list[Claim], list[Content]]:
    (found,) = records.values()
    seconds = found["seconds"]
    claims = [
        Claim(what="ÂX on one thread / scipy's", value=seconds[ONE] / seconds[SCIPY], at_most=1.2),
        Claim(what="ÂX on one thread / on all", value=seconds[ONE] / seconds[EVERY], at_least=1.8),
    ]
    rows = [(name, short(seconds[name])) for name in (SCIPY, ONE, EVERY)]
    caption = f"ÂX: {found['entries']:,} entries times {found['width']} columns"
    return claims, [Table(("", "s"), rows, caption)]


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

    sides: dict[str, Side] = {
        "predict": repeated([partial(predict, model, graph)]),
        WIDE: times(x),
        NARROW: times(hidden),
        GEMMS: repeated([lambda: (np.dot(x, w0), np.dot(hidden, w1))]),
        LAST: times(scores),
    }
    with thread_count(0):
        found = seconds_in_turns(sides, rounds=rounds, chunk_seconds=0, what="Timing inference")
    return {"nodes": graph.n_nodes, "seconds": medians(found)}


def show_inference(records: Records) -> tuple[list[Claim], list[Content]]:
    (found,) = records.values()
    seconds = found["seconds"]
    rest = seconds[GEMMS] + seconds[LAST]
    floor, cheaper = (seconds["predict"] / (seconds[name] + rest) for name in (WIDE, NARROW))
    words = f"all nodes / ({NARROW} + {GEMMS} + {LAST}), the cheaper order"
    claims = [
        Claim(what=f"all nodes / ({WIDE} + {GEMMS} + {LAST})", value=floor, at_most=1.5),
        Claim(what=words, value=cheaper),
    ]
    rows = [(name, short(value)) for name, value in seconds.items()]
    return claims, [Table(("", "s"), rows, f"Inference for all {found['nodes']:,} nodes")]


# The peak memory of training from a store, against the bytes that training needs.


def measure_memory(*, data: str) -> Record:
    """Bytes that a fresh process takes at its peak, training two epochs with the paper's preset.

    Evaluation after each epoch and the test are included; the second epoch finds what the first
    has left. `baseline` is a process that only imports what training imports. `needed` are the
    bytes of ÂX and of the training graph's Â in CSR form: offsets, columns, values.
    """
    graph, config = load(data), paper_preset(data)
    adjacency = training_graph(graph, config).adjacency
    csr = sum(part.nbytes for part in (adjacency.indptr, adjacency.indices, adjacency.values))
    return {
        "needed": {"ÂX": 4 * adjacency.n * graph.n_features, "Â": csr},
        "baseline": fresh(train_once, data, 0),
        "training": fresh(train_once, data, 2),
    }


def show_memory(records: Records) -> tuple[list[Claim], list[Content]]:
    (found,) = records.values()
    needed, baseline, training = sum(found["needed"].values()), found["baseline"], found["training"]
    name = "(peak − imports) / (ÂX + training CSR)"
    own = {kind: (training[kind] - baseline[kind]) / needed for kind in ("peak", "anonymous")}
    asked = "peak / (ÂX + training CSR): what is asked"
    claims = [
        Claim(what=asked, value=training["peak"] / needed, at_most=1.3),
        Claim(what=name, value=own["peak"]),
        Claim(what=f"{name}, without mapped files", value=own["anonymous"]),
    ]
    bytes_of = {
        "ÂX": (found["needed"]["ÂX"], None),
        "Â of the training graph": (found["needed"]["Â"], None),
        "a process that imports": (baseline["peak"], baseline["anonymous"]),
        "a process that trains": (training["peak"], training["anonymous"]),
    }
    rows = [
        (what, *("" if n is None else f"{n / 1e6:,.0f}" for n in each))
        for what, each in bytes_of.items()
    ]
    return claims, [Table(("", "MB", "MB without mapped files"), rows, "Peak memory of training")]


# How long it takes to start: the help, the import, and the first training on a fresh machine.

_COMMANDS = {
    "interpreter": ["-c", "pass"],
    "import": ["-c", "import fastgcn"],
    "help": ["-m", "fastgcn", "--help"],
}


def _python(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    variables = os.environ | (environment or {})
    subprocess.run([sys.executable, *arguments], env=variables, capture_output=True, check=True)


def measure_starts(*, processes: int) -> Record:
    """Seconds from the start of a fresh process to its end, medians, in turns.

    Python itself, `import fastgcn`, and `fastgcn --help`; files are in the system's cache.
    """
    sides = {name: repeated([partial(_python, args)]) for name, args in _COMMANDS.items()}
    found = seconds_in_turns(sides, rounds=processes, chunk_seconds=0, what="Starting processes")
    return dict(medians(found))


def measure_first_start(*, data: str, processes: int) -> Record:
    """Seconds of `fastgcn train DATA --epochs 1` in a fresh process, kernels not compiled yet.

    `cold`: with an empty folder for compiled kernels, as on a fresh machine; `warm`: the next
    start. Loading, ÂX, an epoch's steps, evaluation and the test are included, so that the
    first step is done before. Medians of so many.
    """
    load(data)  # downloaded once, and not counted
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as folder:
            for number, each in enumerate(seconds.values()):
                command = ["-m", "fastgcn", "train", data, "--epochs", "1", "--json"]
                command += ["--run-dir", f"{folder}/run-{number}"]
                run = partial(_python, command, {"NUMBA_CACHE_DIR": f"{folder}/kernels"})
                each.append(wall_clock(repeated([run]), 1))
    return dict(medians(seconds))


def show_startup(records: Records) -> tuple[list[Claim], list[Content]]:
    starts = records["starts"]
    firsts = {data: found for data, found in records.items() if data != "starts"}
    claims = [
        Claim(what="`fastgcn --help`", value=starts["help"], at_most=0.3, unit=" s"),
        Claim(what="`import fastgcn`", value=starts["import"], at_most=0.5, unit=" s"),
    ]
    for data, found in firsts.items():
        what = f"first training on {data}, cold kernels"
        claims.append(Claim(what=what, value=found["cold"], at_most=10.0, unit=" s"))
    rows = [("Python itself", short(starts["interpreter"]))]
    rows += [(f"next start, one epoch on {d}", short(found["warm"])) for d, found in firsts.items()]
    return claims, [Table(("", "s"), rows, "Beside these")]
