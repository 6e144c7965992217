"""The automatic choice: a few candidates for a graph, by its sizes and the kind of its features.

No name of a data set is read. What the candidates are, and why these, is in docs/LOG.md ("Best by
default").
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fastgcn.backends.evaluator import Sizes, training_work
from fastgcn.config import TrainConfig
from fastgcn.features.store import nearly_dense
from fastgcn.graph.graph import Graph
from fastgcn.machine import choose_device


class Candidate(NamedTuple):
    """Complete settings, and what they are called in the table of a race."""

    name: str
    config: TrainConfig


# Draw entries of the rows above in proportion to their sizes, stratified, with each node's own
# term exact. Of all samplers here, this has the lowest error of the gradient at a given t
# (docs/estimators.md).
BEST_SAMPLER: dict[str, Any] = {
    "distribution": "ladies",
    "power": 1.0,
    "draws": "stratified",
    "self_term": "exact",
}

# Who asks for one of these asks for sampling.
SAMPLING_SETTINGS = frozenset(
    {
        "method", "samples", "target_error", "distribution", "power", "draws", "self_term",
        "history", "history_every", "neighbors_only", "correct_weights", "fanouts", "batch_size",
        "drop_last",
    }
)  # fmt: skip

# The neighbours among training nodes, on average, that are enough to learn from them alone.
_ENOUGH_NEIGHBORS = 10

# Sparse features that are nearly dense become dense if they take at most so many bytes.
_DENSE_BYTES = 1 << 30

# Training nodes a class below which a node's own row tells less than it lets the network memorise.
_FEW_LABELS = 50

# With so many training nodes, there is no need to race for strong regularisation on a GPU.
_MANY_TRAINING_NODES = 20_000

# Epochs until the best validation score: of full passes, and of batches, which a GPU has larger
# candidates for.
_FULL_EPOCHS = 100
_SAMPLED_EPOCHS = 30
_SAMPLED_EPOCHS_ON_GPU = 20

# Up to this many nodes, twice the hidden width or a third layer takes twice the time and gains
# nothing, nor does more patience.
_SMALL_GRAPH = 5000

# A full pass of at most this many multiplications, about a tenth of a second, is cheap anyway.
_CHEAP = 1 << 28

# Where a full pass is cheap, on a GPU at most ten times as long as a quick one, the mean of so many
# networks is worth their time: it gains 0.1 to 0.8 points (docs/LOG.md).
_NETWORKS, _QUICK_FOR_SEVERAL = 3, 10


def candidates(
    graph: Graph, *, sampled: bool | None = None, device: str = "auto"
) -> list[Candidate]:
    """The candidates for a graph; the first is the one to take without a race.

    With `sampled`, they draw vertices; if it is None, the sizes of the graph and the kind of the
    device decide.
    """
    on_gpu = choose_device(device).type != "cpu"
    # A mean over fewer neighbours than there are is another number: on a generated graph, training
    # without the other nodes explains 0.89 of the variance instead of 0.99.
    inductive = trains_inductively(graph) and not graph.regression
    dense = has_dense_features(graph)
    base: dict[str, Any] = {
        "hidden": 128,
        "bias": True,
        "inductive": inductive,
        "feature_scaling": "standard" if dense else "none",
        "skip": True,
        "input_skip": True,
    }
    sampling = sampling_settings(graph, inductive=inductive, on_gpu=on_gpu)
    full = {"method": "gcn", "precompute": dense}
    if sampled is None:
        sampled = not full_passes_pay(graph, base | full, base | sampling, on_gpu=on_gpu)
    if sampled:
        base |= sampling | {"learning_rate": 0.01, "epochs": 100, "patience": 20}
    else:
        base |= full | {"learning_rate": 0.02, "epochs": 400, "patience": 50}
        if graph.n_nodes <= _SMALL_GRAPH:
            base |= {"hidden": 64, "patience": 30}
        if not graph.regression and _several_pay(graph, base, on_gpu=on_gpu):
            base["ensemble"] = _NETWORKS
    few = has_few_neighbors(graph)
    large = graph.n_nodes > _SMALL_GRAPH
    if graph.regression:
        base["learning_rate"] = 0.01
        options = _regression_options()
    elif on_gpu and len(graph.split.train) >= _MANY_TRAINING_NODES:
        options = _large_options(sampled=sampled, few_neighbors=few)
    elif sampled:
        options = _sampled_options(few_neighbors=few and large)
    else:
        few_labels = len(graph.split.train) < _FEW_LABELS * graph.n_outputs
        options = _full_options(dense=dense, large=large, few_neighbors=few, few_labels=few_labels)
    return [
        Candidate(name, TrainConfig(**(base | settings)).complete())
        for name, settings in options.items()
    ]


_STRONG: dict[str, Any] = {"dropout": 0.5, "weight_decay": 5e-4, "weight_decay_on": "all"}
_WEAK: dict[str, Any] = {"dropout": 0.3, "weight_decay": 5e-5, "weight_decay_on": "all"}

# The mean of the neighbours beside the node's own row, as in GraphSAGE.
_MEAN: dict[str, Any] = {"normalization": "neighbors", "norm": "layer", "dropout": (0.2, 0.5)}


# A third layer sees what is three edges away.
_DEEP: dict[str, Any] = {"hidden": (128, 128)}
_DEEP_MEAN: dict[str, Any] = _MEAN | _WEAK | _DEEP


def _full_options(
    *, dense: bool, large: bool, few_neighbors: bool, few_labels: bool
) -> dict[str, dict[str, Any]]:
    """What the candidates of full passes differ in, by name."""
    scaled = {"feature_scaling": "row"}
    found = {
        "with and without own rows": _STRONG | {"pair": True, "dropout": 0.7},
        "own rows": _WEAK,
        "mean of neighbours": _MEAN,
    }
    if few_labels:
        plain = _STRONG | {"skip": False, "input_skip": False} | ({} if dense else scaled)
        return {"without own rows": plain} | found
    if not dense:
        found["own rows, scaled rows"] = _STRONG | scaled
    if large and (dense or few_neighbors):
        found["mean of neighbours, three layers"] = _DEEP_MEAN
    elif large:
        found["scaled rows, three layers"] = _WEAK | scaled | _DEEP
    return found


def _sampled_options(*, few_neighbors: bool) -> dict[str, dict[str, Any]]:
    """The same for sampled batches, whose noise regularises as well."""
    found = {"mean of neighbours": _MEAN, "own rows": _WEAK | {"dropout": 0.2, "hidden": 256}}
    return found | ({"mean of neighbours, three layers": _DEEP_MEAN} if few_neighbors else {})


def _regression_options() -> dict[str, dict[str, Any]]:
    """The same for numbers to predict: without dropout and norms, which change the sizes of rows;
    these were measured (docs/LOG.md). The last is for more features than nodes tell apart."""
    plain = {"dropout": 0.0, "weight_decay": 5e-4, "weight_decay_on": "all"}
    return {
        "mean of neighbours": plain | {"normalization": "neighbors"},
        "own rows": plain,
        "mean of neighbours, dropout": _MEAN,
    }


def _large_options(*, sampled: bool, few_neighbors: bool) -> dict[str, dict[str, Any]]:
    """The same for a large graph on a GPU, where these were measured (docs/LOG.md)."""
    wide = _MEAN | {"norm": "none", "dropout": 0.2, "weight_decay_on": "all", "hidden": 256}
    if not sampled:
        slower = {"learning_rate": 0.01}
        weak = wide | slower | {"weight_decay": 5e-5}
        found = {"mean of neighbours": _MEAN | slower, "mean of neighbours, weak L2": weak}
        deep = {"mean of neighbours, three layers": _DEEP_MEAN | slower}
        return found | (deep if few_neighbors else {})
    wide |= {"learning_rate": 0.002}
    normed = wide | {"norm": "layer", "dropout": 0.1, "weight_decay": 5e-5}
    return {"mean of neighbours": normed, "mean of neighbours, L2": wide | {"weight_decay": 5e-4}}


def has_dense_features(graph: Graph) -> bool:
    """True if features are dense, or sparse ones that are better treated so."""
    cells = graph.n_nodes * graph.n_features
    small = 4 * cells <= _DENSE_BYTES and nearly_dense(graph.features.size, cells)
    return isinstance(graph.features, np.ndarray) or small


def has_few_neighbors(graph: Graph) -> bool:
    """True if a node has so few neighbours that those three edges away tell something new."""
    return len(graph.csr.indices) < _ENOUGH_NEIGHBORS * graph.n_nodes


def trains_inductively(graph: Graph) -> bool:
    """True if the edges among training nodes are enough to learn from.

    If training nodes are drawn at random, a neighbour of one is one itself with probability
    n_train / n. On graphs of few edges a node, training without the others loses up to eight
    points of F1; on graphs of many it loses nothing and takes less time.
    """
    n, n_train = graph.n_nodes, len(graph.split.train)
    return n_train * len(graph.csr.indices) >= _ENOUGH_NEIGHBORS * n * n


def sampling_settings(graph: Graph, *, inductive: bool, on_gpu: bool) -> dict[str, Any]:
    """The sampler, and sizes that fit the training graph.

    At the same rate, batches four times as large with four times the draws reach a higher score
    in less time on a CPU, and several threads can share a step of theirs (docs/LOG.md).
    """
    n_train = len(graph.split.train)
    largest, share = (1024, 8) if on_gpu else (4096, 16)
    batch_size = min(largest, max(32, n_train // share))
    samples = max(2000, 2 * batch_size)
    return {
        **BEST_SAMPLER,
        "samples": max(1, min(samples, n_train if inductive else graph.n_nodes)),
        "batch_size": batch_size,
    }


def full_passes_pay(
    graph: Graph, full: dict[str, Any], sampled: dict[str, Any], *, on_gpu: bool
) -> bool:
    """True if full passes reach their best score at lower costs than sampled batches.

    Costs are multiplications, on a GPU seconds: there bytes and kernels take the time. They come
    from sizes alone, so that the choice is the same on every machine with such a device.
    """
    cost, cheap, epochs = (
        (seconds_on_gpu, _QUICK, _SAMPLED_EPOCHS_ON_GPU)
        if on_gpu
        else (epoch_work, _CHEAP, _SAMPLED_EPOCHS)
    )
    passes, batches = (
        cost(graph, TrainConfig(**settings).complete()) for settings in (full, sampled)
    )
    return passes <= cheap or _FULL_EPOCHS * passes <= epochs * batches


def _several_pay(graph: Graph, full: dict[str, Any], *, on_gpu: bool) -> bool:
    """True if a full pass is so cheap that several networks are trained."""
    config = TrainConfig(**full).complete()
    if on_gpu:
        return seconds_on_gpu(graph, config) <= _QUICK_FOR_SEVERAL * _QUICK
    return epoch_work(graph, config) <= _CHEAP


# What was measured on an H200 (docs/gpu.md): bytes that it moves in a second, the time between two
# kernels, that of a sampled step and, beside it, of each number that the step's rows hold.
_BANDWIDTH = 3e12
_KERNEL = 3e-6
_STEP, _OF_A_NUMBER = 40e-6, 1.6e-11

# A full pass in less time than this is quick anyway.
_QUICK = 2e-3


def seconds_on_gpu(graph: Graph, config: TrainConfig) -> float:
    """About what an epoch takes on an H200, validation included, by sizes alone.

    A full pass reads and writes rows of inputs five times and hidden ones thirty times; each entry
    of Â, and of sparse features, reads a row forward and backward. Validation does a third of it.
    """
    sizes, d = expected_sizes(graph, inductive=config.inductive), max(config.hidden_sizes)
    dense = config.method != "gcn" or config.precompute
    width = graph.n_features * (1 + config.input_skip) if dense else 0
    rows_of_entries = 2 * (0.0 if dense else 2 * d * sizes.inputs + d * sizes.all_entries)

    def moved(nodes: float, entries: float) -> float:
        share = nodes / sizes.all_nodes
        by_rows = nodes * (5 * width + 30 * d) + share * rows_of_entries
        return 4 * (by_rows + 2 * entries * min(d, graph.n_outputs)) / _BANDWIDTH + 70 * _KERNEL

    judged = moved(sizes.all_nodes, sizes.scored_entries) / 3
    if config.method == "gcn":
        share = sizes.batch_nodes / sizes.nodes
        return judged + moved(sizes.nodes, sizes.entries * share)
    rows = max(1, min(config.batch_size, sizes.batch_nodes))
    held = (rows + sum(config.layer_samples)) * width
    return judged + math.ceil(sizes.batch_nodes / rows) * (_STEP + _OF_A_NUMBER * held)


def epoch_work(graph: Graph, config: TrainConfig) -> float:
    """Multiplications of an epoch, as far as the sizes of the graph tell."""
    sizes = expected_sizes(graph, inductive=config.inductive)
    return training_work(sizes, config, (graph.n_features, *config.hidden_sizes, graph.n_outputs))


def expected_sizes(graph: Graph, *, inductive: bool) -> Sizes:
    """The sizes of training, if the training and validation nodes were drawn at random."""
    n, n_train, n_val = graph.n_nodes, len(graph.split.train), len(graph.split.val)
    entries = len(graph.csr.indices)
    nodes = n_train if inductive else n
    share = nodes / max(n, 1)
    return Sizes(
        nodes=nodes,
        entries=round(entries * share**2) + nodes,
        batch_nodes=n_train,
        all_nodes=n,
        all_entries=entries + n,
        inputs=graph.features.size,
        scored=n_val,
        scored_entries=round(entries * n_val / max(n, 1)) + n_val,
    )
