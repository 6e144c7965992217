"""The automatic choice: a few candidates for a graph, by its sizes and the kind of its features.

No name of a data set is read. What the candidates are, and why these, is in docs/LOG.md ("Best by
default").
"""

from typing import Any, NamedTuple

import numpy as np

from fastgcn.backends.evaluator import Sizes, training_work
from fastgcn.config import TrainConfig
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

# Below this share of training nodes, too few edges join two of them to learn from.
_FEW_TRAINING_NODES = 0.1

# Steps until the best validation score, in epochs: of full passes, and of batches of 1,024.
_FULL_EPOCHS = 100
_SAMPLED_EPOCHS = 20

# A full pass of at most this many multiplications, about a tenth of a second, is cheap anyway.
_CHEAP = 1 << 28


def candidates(
    graph: Graph, *, sampled: bool | None = None, device: str = "auto"
) -> list[Candidate]:
    """The candidates for a graph; the first is the one to take without a race.

    With `sampled`, they draw vertices; if it is None, the sizes of the graph decide.
    """
    inductive, dense = trains_inductively(graph), isinstance(graph.features, np.ndarray)
    base: dict[str, Any] = {
        "hidden": 128,
        "bias": True,
        "inductive": inductive,
        "feature_scaling": "standard" if dense else "none",
        "skip": True,
        "input_skip": True,
    }
    sampling = sampling_settings(graph, inductive=inductive)
    full = {"method": "gcn", "precompute": dense}
    if sampled is None:
        sampled = not full_passes_pay(graph, base | full, base | sampling, device)
    if sampled:
        base |= sampling | {"learning_rate": 0.005, "epochs": 100, "patience": 20}
    else:
        base |= full | {"learning_rate": 0.02, "epochs": 400, "patience": 50}
    options = _sampled_options() if sampled else _full_options(dense=dense)
    return [
        Candidate(name, TrainConfig(**(base | settings)).complete())
        for name, settings in options.items()
    ]


_STRONG: dict[str, Any] = {"dropout": 0.5, "weight_decay": 5e-4, "weight_decay_on": "all"}
_WEAK: dict[str, Any] = {"dropout": (0.2, 0.5)}
_PAIR: dict[str, Any] = {"pair": True}  # two networks of half the width


def _full_options(*, dense: bool) -> dict[str, dict[str, Any]]:
    """What the candidates of full passes differ in, by name."""
    found = {
        "with and without own rows": _PAIR | _STRONG | {"dropout": 0.7},
        "own rows, layer norm": _WEAK | {"norm": "layer"},
        "own rows, no L2": {"dropout": 0.5},
    }
    if not dense:
        found["own rows, scaled rows"] = _STRONG | {"feature_scaling": "row"}
    return found


def _sampled_options() -> dict[str, dict[str, Any]]:
    """The same for sampled batches, whose noise regularises as well."""
    return {
        "own rows, layer norm": _WEAK | {"norm": "layer"},
        "with and without own rows": _PAIR | _WEAK | {"hidden": 256},
    }


def trains_inductively(graph: Graph) -> bool:
    """False if so few nodes are training nodes that hardly any edge joins two of them."""
    return len(graph.split.train) >= _FEW_TRAINING_NODES * graph.n_nodes


def sampling_settings(graph: Graph, *, inductive: bool) -> dict[str, Any]:
    """The sampler, and sizes that fit the training graph."""
    n_train = len(graph.split.train)
    return {
        **BEST_SAMPLER,
        "samples": max(1, min(2000, n_train if inductive else graph.n_nodes)),
        "batch_size": min(1024, max(32, n_train // 8)),
    }


def full_passes_pay(
    graph: Graph, full: dict[str, Any], sampled: dict[str, Any], device: str
) -> bool:
    """True if full passes reach their best score in fewer multiplications than sampled batches.

    Decided from sizes alone, so that it is the same on every machine with such a device. On a GPU
    full passes have no fast path.
    """
    if choose_device(device).type != "cpu":
        return False
    passes, batches = (
        epoch_work(graph, TrainConfig(**settings).complete()) for settings in (full, sampled)
    )
    return passes <= _CHEAP or _FULL_EPOCHS * passes <= _SAMPLED_EPOCHS * batches


def epoch_work(graph: Graph, config: TrainConfig) -> float:
    """Multiplications of an epoch, as far as the sizes of the graph tell."""
    sizes = expected_sizes(graph, inductive=config.inductive)
    return training_work(sizes, config, (graph.n_features, *config.hidden_sizes, graph.n_classes))


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
