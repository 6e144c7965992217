"""Applying a trained network: predict, embed, evaluate; exact or sampled; for any nodes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.exact import (
    ROW_ARRAYS,
    check_width,
    feature_rows,
    full_forward,
    full_view,
    needed_nodes,
    with_all_of_most,
)
from fastgcn.config import TrainConfig
from fastgcn.data.imported import same_encoders
from fastgcn.data.layout import fingerprint
from fastgcn.data.splits import SHARES, random_split
from fastgcn.errors import InputError, nearest
from fastgcn.features.disk import first_layer_rows
from fastgcn.features.plan import Budget
from fastgcn.graph import checks
from fastgcn.graph.adjacency import Normalization, normalize
from fastgcn.graph.graph import UNLABELLED, Graph, own_ids, parse_nodes, positions
from fastgcn.graph.labels import has_label
from fastgcn.infer.finite import Described, check_rows, check_weights
from fastgcn.infer.tables import data_frame, prediction_columns
from fastgcn.machine import memory_of_device
from fastgcn.memory import check_room
from fastgcn.metrics import MORE, Metrics, scored
from fastgcn.model import GCN, as_gcn
from fastgcn.network import Network
from fastgcn.sampling import layer_sampler
from fastgcn.scratch import Room

if TYPE_CHECKING:
    import pandas

    from fastgcn.backends.ranks.shard import Shard
    from fastgcn.train.run import Run

T = TypeVar("T")

# Nodes whose blocks are sampled together; bounds the temporaries.
_SAMPLED_AT_ONCE = 1_024

# Rows in one part of a result.
_ROWS_A_PART = 1 << 17


@overload
def predict(
    run_or_model: "Run | Network",
    graph: "Graph | Shard",
    nodes: Any = None,
    *,
    ids: Sequence[Any] | None = None,
    samples: int | Sequence[int] | None = None,
    seed: int = 0,
    memory: str = "auto",
    as_frame: Literal[False] = False,
) -> FloatArray: ...
@overload
def predict(
    run_or_model: "Run",
    graph: Graph,
    nodes: Any = None,
    *,
    ids: Sequence[Any] | None = None,
    samples: int | Sequence[int] | None = None,
    seed: int = 0,
    memory: str = "auto",
    as_frame: Literal[True],
    top: int | None = None,
) -> "pandas.DataFrame": ...
def predict(
    run_or_model: "Run | Network",
    graph: "Graph | Shard",
    nodes: Any = None,
    *,
    ids: Sequence[Any] | None = None,
    samples: int | Sequence[int] | None = None,
    seed: int = 0,
    memory: str = "auto",
    as_frame: bool = False,
    top: int | None = None,
) -> "FloatArray | pandas.DataFrame":
    """(len(nodes), C) float32: the probability of each class (or label) for each node; for a
    regression, (len(nodes),) float64: the number, in the units of the training targets.

    By default the exact network (§3.2), computed only as far as `nodes` need; with `samples`,
    each convolution is estimated from that many vertices, as in training. `nodes` are numbers, the
    name of a part of the split, or "unlabelled"; None means all. `ids` are your own ids instead.

    With `as_frame`, the result is a data frame: its index has your own ids, its columns are
    `prediction`, by class name, and the probability of each class, p_NAME; or with `top`, the names
    and probabilities of the K most probable classes. For a regression, `prediction` is the number.

    `memory`, such as "4GB", is the process's limit beside the result; what the exact network
    needs beyond that is on disk.

    Several processes predict together if each passes its `Shard` of the graph: `nodes` and the
    result are then those of the shard, numbered from 0, and every process must make the call.
    """
    if top is not None and not as_frame:
        raise InputError("top is for a data frame; add as_frame=True")
    if as_frame and (isinstance(run_or_model, Network) or not isinstance(graph, Graph)):
        raise InputError("as_frame=True needs a run, and a graph in a single process")
    nodes = _asked(run_or_model, graph, nodes, ids)
    parts = predict_parts(run_or_model, graph, nodes, samples=samples, seed=seed, memory=memory)
    model = model_of(run_or_model)
    width = model.sizes[-1]
    _check_result(graph, nodes, width)
    found = _whole(parts, width)
    if not as_frame:
        return found[:, 0] if model.target is not None else found
    assert isinstance(graph, Graph)
    assert not isinstance(run_or_model, Network)
    own = own_ids(graph, _node_set(graph, nodes))
    return data_frame(prediction_columns(own, found, run_or_model, top))


def _asked(
    run_or_model: "Run | Network",
    graph: "Graph | Shard",
    nodes: Any,
    ids: Sequence[Any] | None,
) -> Any:
    """Node numbers from own ids, or from the name of a set of nodes."""
    if ids is not None:
        if nodes is not None:
            raise InputError("give either nodes, by number, or ids, your own; not both")
        if isinstance(ids, str) or not isinstance(graph, Graph):
            raise InputError("ids must be a list of your own ids, of a graph in a single process")
        return positions(graph, [str(each) for each in ids])
    if isinstance(nodes, str):
        if nodes in UNLABELLED and isinstance(graph, Graph):
            return parse_nodes(graph, nodes)
        return _part(run_or_model, graph, nodes)
    if isinstance(nodes, list | tuple | np.ndarray) and np.asarray(nodes).dtype.kind == "U":
        raise InputError("nodes must be numbers 0, 1, ...; give your own ids as ids=[...]")
    return nodes


def asked_nodes(run_or_model: "Run | Network", graph: Graph, nodes: Any) -> IntArray:
    """The nodes that `predict` would be given; raises if the network does not fit the graph."""
    return _checked_nodes(run_or_model, graph, _asked(run_or_model, graph, nodes, None), "auto")


def predict_parts(
    run_or_model: "Run | Network",
    graph: "Graph | Shard",
    nodes: Any = None,
    *,
    samples: int | Sequence[int] | None = None,
    seed: int = 0,
    memory: str = "auto",
) -> Iterator[tuple[IntArray, FloatArray]]:
    """`predict` in parts: some of the nodes, and their probabilities (k, C) or numbers (k, 1)."""
    model = model_of(run_or_model)
    ids = _checked_nodes(run_or_model, graph, nodes, memory, samples)
    if samples is None:
        logits = _exact_rows(model, graph, ids, model.depth, memory)
    else:
        logits = _sampled_forward(run_or_model, graph_of(graph), ids, samples, seed)
    yield from _parts(graph, ids, logits, model.predictions)


def embed(
    run_or_model: "Run | Network",
    graph: "Graph | Shard",
    nodes: Any = None,
    *,
    layer: int = -1,
    memory: str = "auto",
) -> FloatArray:
    """(len(nodes), d) float32: the rows H^(layer) of the exact network.

    `layer` 1..M counts the network's layers, M being the class scores before the softmax;
    -1, the default, is the last hidden layer M-1, and 0 the features themselves. `graph`,
    `nodes` and `memory` are as for `predict`.
    """
    parts = embed_parts(run_or_model, graph, nodes, layer=layer, memory=memory)
    model = model_of(run_or_model)
    width = model.sizes[_on_all(graph, "the layer", lambda: layers_of(model, layer))]
    _check_result(graph, nodes, width)
    return _whole(parts, width)


def embed_parts(
    run_or_model: "Run | Network",
    graph: "Graph | Shard",
    nodes: Any = None,
    *,
    layer: int = -1,
    memory: str = "auto",
) -> Iterator[tuple[IntArray, FloatArray]]:
    """`embed` in parts: some of the nodes, and their rows."""
    model = model_of(run_or_model)
    ids = _checked_nodes(run_or_model, graph, nodes, memory)
    layers = _on_all(graph, "the layer", lambda: layers_of(model, layer))
    yield from _parts(graph, ids, _exact_rows(model, graph, ids, layers, memory))


def layers_of(model: Network, layer: int) -> int:
    """The number of layers to compute for H^(layer); -1 is the last hidden one."""
    depth = model.depth
    if not -depth <= layer <= depth:
        raise InputError(f"layer must lie in {-depth}..{depth} for this network, got {layer}")
    return layer % depth if layer < 0 else layer


def evaluate(
    run_or_model: "Run | Network",
    graph: "Graph | Shard",
    nodes: Any,
    *,
    memory: str = "auto",
    also: Sequence[str] = MORE,
) -> Metrics:
    """Scores on `nodes` (ids, or the name of a part of the split); unlabelled ones do not count.

    `also` names scores beside the usual four, such as "recall@100"; those that are not defined for
    these nodes are left out.

    If each process passes its `Shard`, all of them get the scores on the nodes of all.
    """

    def labelled_nodes() -> IntArray:
        ids = _node_set(
            graph, _part(run_or_model, graph, nodes) if isinstance(nodes, str) else nodes
        )
        if graph.labels is None:
            raise InputError(f"{graph_of(graph).name} has no labels to evaluate against")
        check_classes(run_or_model, graph_of(graph))
        return ids[has_label(graph.labels[ids])]

    ids = _on_all(graph, "nodes", labelled_nodes)
    _need_some(graph, ids, "there is no labelled node among those to evaluate")
    assert graph.labels is not None
    found, labels = predict(run_or_model, graph, ids, memory=memory), graph.labels[ids]
    rule = model_of(run_or_model).rule
    if isinstance(graph, Graph):
        return scored(found, labels, rule, also)
    from fastgcn.backends.ranks.forward import gather_outputs

    comm = graph.group.host_comm
    return scored(
        found,
        labels,
        rule,
        also,
        reduce=lambda own: own.of(comm.all_reduce(own.figures, "scores")),
        gather=lambda rows, known: gather_outputs(comm, rows, known),
    )


def graph_of(graph: "Graph | Shard") -> Graph:
    """The whole graph; for a shard, it may be only an outline."""
    return graph if isinstance(graph, Graph) else graph.graph


def with_own_ids(
    graph: "Graph | Shard", parts: Iterable[tuple[IntArray, FloatArray]], *, ids: bool = True
) -> Iterator[tuple[list[Any], FloatArray]]:
    """Parts of a result with the user's own ids instead of node numbers; no ids without `ids`.

    If there are several processes, the first gets the rows of all, in the order of the graph, and
    the others get none; all must run the iterator to its end.
    """
    if isinstance(graph, Graph):
        return ((own_ids(graph, some) if ids else [], rows) for some, rows in parts)
    from fastgcn.backends.ranks.shard import gather_parts

    return gather_parts(graph, parts, ids=ids)


def _on_all(graph: "Graph | Shard", what: str, do: Callable[[], T]) -> T:
    """Call `do()`; if it fails in one of several processes, all fail and one says why."""
    return do() if isinstance(graph, Graph) else graph.group.on_all(what, do)


def count_nodes(graph: "Graph | Shard", nodes: IntArray) -> int:
    """How many nodes all processes have together."""
    if isinstance(graph, Graph):
        return len(nodes)
    return sum(graph.group.host_comm.gather_counts(len(nodes), "numbers of nodes"))


def _need_some(graph: "Graph | Shard", nodes: IntArray, message: str) -> None:
    """Raise an error with `message` if no process has any node."""
    total = count_nodes(graph, nodes)

    def check() -> None:
        if total == 0:
            raise InputError(message)

    _on_all(graph, "nodes", check)


def _check_result(graph: "Graph | Shard", nodes: Any, width: int) -> None:
    """Refuse a result that does not fit in memory; a command writes it in parts."""
    rows = graph.n_nodes if nodes is None else np.size(nodes)
    _on_all(
        graph,
        "the result",
        lambda: check_room(4 * rows * width, "the result", "ask for fewer nodes at a time"),
    )


def _whole(parts: Iterable[tuple[IntArray, FloatArray]], width: int) -> FloatArray:
    """The rows of all parts; a process whose shard has none of the nodes gets (0, width)."""
    rows = [some for _, some in parts]
    return np.concatenate(rows) if rows else np.empty((0, width), np.float32)


def _checked_nodes(
    run_or_model: "Run | Network",
    graph: "Graph | Shard",
    nodes: Any,
    memory: str,
    samples: int | Sequence[int] | None = None,
) -> IntArray:
    """The nodes as an array; raises if the network does not fit the graph."""

    def checked() -> IntArray:
        if not isinstance(graph, Graph) and (samples is not None or memory != "auto"):
            raise InputError("samples and memory are for a single process; leave them out")
        whole = graph_of(graph)
        check_weights(model_of(run_or_model))
        _check_encoders(run_or_model, whole)
        check_width(model_of(run_or_model), whole.n_features, f"{whole.name} has")
        check_features(run_or_model, whole)
        return _node_set(graph, nodes)

    ids = _on_all(graph, "the data", checked)
    _need_some(graph, ids, "nodes must name at least one node, got none")
    return ids


# If fewer than one node in this many is requested, the GPU does not compute all nodes.
_FEW = 16


def _all_on_device(model: GCN, graph: Graph, nodes: IntArray) -> bool:
    """True if a pass of the whole graph on the GPU is cheaper than one for `nodes` alone."""
    from fastgcn.backends.gpu import why_no_kernels

    if why_no_kernels() is not None or _FEW * len(nodes) < graph.n_nodes:
        return False
    from fastgcn.backends.gpu.forward import fits

    return fits(graph, model, next(model.parameters()).device)


def _exact_rows(
    model: Network, graph: "Graph | Shard", nodes: IntArray, layers: int, memory: str
) -> Tensor:
    """H^(layers) of `nodes` by the exact network; in a file if it does not fit in memory."""
    if not isinstance(graph, Graph):
        from fastgcn.backends.ranks.forward import shard_rows

        return shard_rows(as_gcn(model, "predicting in several processes"), graph, nodes, layers)
    source, features = full_view(model, graph)
    if next(model.parameters()).device.type != "cpu":
        with memory_of_device():
            if isinstance(model, GCN) and _all_on_device(model, graph, nodes):
                from fastgcn.backends.gpu.forward import apply_to_graph  # needs Triton

                return apply_to_graph(model, graph, nodes, layers)
            return full_forward(model, source, features, nodes, layers=layers)
    if not isinstance(model, GCN):
        return full_forward(model, source, features, nodes, layers=layers)
    left = Budget.of(memory).room()
    needed = needed_nodes(source, np.unique(nodes), layers)
    mixed = None
    # The first layer mixes XW or X, whichever is narrower.
    if layers > 0 and 4 * len(needed[0]) * min(model.sizes[:2]) > left // ROW_ARRAYS:
        if 4 * len(needed[1]) * features.width > left:
            needed = with_all_of_most(needed, source.n)
        mixed = first_layer_rows(
            graph,
            source,
            features,
            needed[1],
            normalization=model.normalization,
            dtype="float32",
            folder=None,
            room=left,
        )
    return full_forward(
        model,
        source,
        features,
        nodes,
        layers=layers,
        needed=needed,
        mixed=mixed,
        room=Room(left // ROW_ARRAYS, Path.cwd()),
    )


def _parts(
    graph: "Graph | Shard",
    ids: IntArray,
    rows: Tensor,
    finish: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Parts of the nodes and of the finished rows, which are finite."""
    names = graph_of(graph).feature_names

    def checked(found: Tensor, nodes: IntArray) -> FloatArray:
        first = 0 if isinstance(graph, Graph) else graph.start
        described = Described(graph.features, graph.node_ids, first)
        return check_rows(found.cpu().numpy(), nodes, described, feature_names=names)

    if not isinstance(graph, Graph):
        # All rows at once: ranks have different numbers of parts and must fail together.
        _on_all(graph, "outputs of the network", lambda: checked(rows, ids))
    for start in range(0, len(ids), _ROWS_A_PART):
        some = ids[start : start + _ROWS_A_PART]
        yield some, checked(finish(rows[start : start + _ROWS_A_PART]), some)


def as_trained(run_or_model: "Run | Network", graph: Graph) -> Graph:
    """The graph; if it has no split and is what the run was trained on, with the run's split."""
    if isinstance(run_or_model, Network) or graph.labels is None:
        return graph
    options = dict(run_or_model.source or {})
    if options.get("split") != "random" or any(len(nodes) for _, nodes in graph.split.items()):
        return graph
    drawn = random_split(graph, **{name: options[name] for name in SHARES if name in options})
    return drawn if fingerprint(drawn) == run_or_model.fingerprint else graph


def _part(run_or_model: "Run | Network", graph: "Graph | Shard", name: str) -> IntArray:
    """Nodes of a part of the split; if there are several processes, those of this shard."""
    if isinstance(graph, Graph):
        graph = as_trained(run_or_model, graph)
    whole, parts = graph_of(graph), dict(graph.split.items())
    if name not in parts:
        raise InputError(
            f"nodes must be ids or one of {', '.join(parts)}, got {name!r}{nearest(name, parts)}"
        )
    if not dict(whole.split.items())[name].size:
        raise InputError(f"the {name} part of {whole.name}'s split is empty")
    return parts[name]


def check_classes(run_or_model: "Run | Network", graph: Graph) -> None:
    """Check that the graph's labels are those that the network was trained on."""
    model = model_of(run_or_model)
    kinds = {
        "classification": "one class per node",
        "multilabel": "several labels per node",
        "regression": "a number per node",
    }
    if graph.task != model.task:
        has = kinds[graph.task or "classification"]
        raise InputError(f"the model predicts {kinds[model.task]}, {graph.name} has {has}")
    if model.task == "regression":
        return
    known = model.sizes[-1]
    # The last classes may have no node; label columns must all be there.
    if graph.n_classes > known or (graph.multilabel and graph.n_classes < known):
        raise InputError(f"the model knows {known} classes, {graph.name} has {graph.n_classes}")
    names = None if isinstance(run_or_model, Network) else run_or_model.class_names
    checks.same_names("class", names, graph.class_names, graph.name)


def model_of(run_or_model: "Run | Network") -> Network:
    return run_or_model if isinstance(run_or_model, Network) else run_or_model.model


@torch.no_grad()
def _sampled_forward(
    run_or_model: "Run | Network",
    graph: Graph,
    nodes: IntArray,
    samples: int | Sequence[int],
    seed: int,
) -> Tensor:
    """Logits with every convolution sampled as in training, also the first one."""
    model = model_of(run_or_model)
    config = TrainConfig() if isinstance(run_or_model, Network) else run_or_model.config
    sizes = checks.integers(np.atleast_1d(samples), "samples").tolist()
    sizes *= model.depth if np.ndim(samples) == 0 else 1
    if len(sizes) != model.depth:
        raise InputError(
            f"samples must be one number or {model.depth}, one per layer, got {len(sizes)}"
        )
    adjacency = normalize(graph, cast(Normalization, model.normalization))
    sampler = layer_sampler(config, adjacency, sizes, own_rows=model.needs_own_rows)
    features = feature_rows(model, graph.features)
    rng = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    parts = []
    asked, place = np.unique(nodes, return_inverse=True)
    for start in range(0, len(asked), _SAMPLED_AT_ONCE):
        batch = torch.from_numpy(asked[start : start + _SAMPLED_AT_ONCE])
        blocks = sampler.sample(batch, rng)
        x = features.take(blocks[0].src.numpy()).to(device)
        parts.append(model([block.to(device) for block in blocks], x))
    model.train(was_training)
    return torch.cat(parts)[torch.from_numpy(place).to(device)]


def _node_set(graph: "Graph | Shard", nodes: Any) -> IntArray:
    if nodes is None:
        return np.arange(graph.n_nodes)
    ids = checks.integers(nodes, "nodes").astype(np.int64, copy=False)
    checks.in_range(ids, graph.n_nodes, "nodes")
    return ids


def check_features(run_or_model: "Run | Network", graph: Graph) -> None:
    """Check that the graph's features are those the network was trained on, in the same order.

    If columns had changed places, the probabilities would be wrong without any sign of it.
    """
    names = None if isinstance(run_or_model, Network) else run_or_model.feature_names
    checks.same_names("feature", names, graph.feature_names, graph.name)
    _check_encoders(run_or_model, graph)


def _check_encoders(run_or_model: "Run | Network", graph: Graph) -> None:
    """Check that the graph's tables were encoded as those that the network was trained on."""
    imported = None if isinstance(run_or_model, Network) else run_or_model.imported
    if not same_encoders(imported, graph.imported):
        raise InputError(
            f"the columns of {graph.name} were encoded otherwise than those that the run was "
            "trained on; import its tables again with the run's encoders (--like RUN)"
        )
