"""The full network by eq. 1, layer by layer in chunks of rows, for the requested nodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.features.propagate import RowBuffer, mean_row_bytes, rows_of
from fastgcn.features.sparse import dense
from fastgcn.features.store import FeatureStore, NodeFeatures
from fastgcn.graph.adjacency import AdjacencyRows, NormalizedRows
from fastgcn.graph.edges import GraphEdges
from fastgcn.graph.graph import Graph
from fastgcn.model import GCN
from fastgcn.network import Network
from fastgcn.progress import progress
from fastgcn.sampling.block import Block
from fastgcn.sampling.neighborhood import FullSampler
from fastgcn.scratch import Room

# Nodes whose rows are mixed together; bounds the temporaries.
_NODES_AT_ONCE = 32_768
# Rows of X or ÂX that are multiplied together: few enough to stay in the cache after reading.
_ROWS_AT_ONCE = 2_048

# Arrays of rows in use at the same time, filled or read. A caller with a limit on memory divides
# it by this number to get the `room` of each array.
ROW_ARRAYS = 3


def full_forward(
    model: Network,
    source: AdjacencyRows,
    features: FeatureStore,
    nodes: IntArray,
    *,
    layers: int | None = None,
    needed: list[IntArray] | None = None,
    mixed: FeatureStore | None = None,
    room: Room | None = None,
) -> Tensor:
    """(len(nodes), d): H^(layers) of `nodes`, on the network's device.

    Layer l is computed only for the nodes that layer l+1 needs. A caller who knows these already
    passes `needed`, the result of `needed_nodes`; `mixed` are rows of ÂX of `needed[1]`. On the
    CPU, the rows of a layer that exceed `room` are in a file, those of the result too.

    A network that is not made of convolutions is applied to whole neighbourhoods instead, of as
    many nodes at once as memory allows.
    """
    if not isinstance(model, GCN):
        assert mixed is None
        return _own_forward(model, source, features, nodes, layers)
    if needed is None:
        layers = len(model.layers) if layers is None else layers
        needed = needed_nodes(source, np.unique(nodes), layers)
    return _GraphForward(model, source, features, room)(nodes, needed, mixed)


# Bytes that a network which is not made of convolutions may take for a pass, about.
_PASS_BYTES = 1 << 29


def _own_forward(
    model: Network,
    source: AdjacencyRows,
    features: FeatureStore,
    nodes: IntArray,
    layers: int | None,
) -> Tensor:
    """(len(nodes), C): the network on the whole neighbourhoods of `nodes`, part after part."""
    device = next(model.parameters()).device
    if layers == 0:
        return dense(features.take(nodes)).to(device)
    asked, places = np.unique(nodes, return_inverse=True)
    sampler, found = FullSampler(source, model.depth), list[Tensor]()
    with _evaluating(model), progress("Applying the network", len(asked), "nodes") as advance:
        parts = [part for _, part in _chunks(asked, _NODES_AT_ONCE)][::-1]
        while parts:
            part = parts.pop()
            blocks = sampler.sample(torch.from_numpy(part))
            if own_bytes(blocks, model) > _PASS_BYTES and len(part) > 1:
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]
                continue
            x = dense(features.take(blocks[0].src.numpy())).to(device)
            with torch.no_grad():
                found.append(model([block.to(device) for block in blocks], x, layers=layers))
            advance(len(part))
    return torch.cat(found)[torch.from_numpy(places).to(device)]


def own_bytes(blocks: list[Block], model: Network) -> int:
    """About the bytes of a pass: the rows of X, and a row for each edge."""
    edges = sum(block.entries for block in blocks)
    return 4 * (blocks[0].size[0] * model.sizes[0] + 2 * edges * max(model.sizes[1:]))


class ExactForward:
    """The exact network (eq. 1) for some nodes, one layer after the other in chunks of rows.

    A subclass defines how a layer mixes the rows below it (`mix`), depending on where they lie.

    Attributes:
        h: rows of H^(l) by node id; out of date if no layer reads them unmixed.
        z: the rows that the next layer mixes: HW, or H if W is wider. If h is not read, only z
            is kept of a layer; it is mostly narrower.
    """

    def __init__(self, model: GCN, features: FeatureStore, room: Room | None = None) -> None:
        self.model, self.features = model, features
        self.device = next(model.parameters()).device
        self.room = room if self.device.type == "cpu" else None
        self.h: Callable[[IntArray], Tensor] = self._inputs
        self.hidden: list[RowBuffer] = []  # of the requested nodes, if the output layer reads them
        self.z = RowBuffer(np.empty(0, np.int64))
        self.advance: Callable[[int], None] = lambda _: None

    def mix(self, number: int) -> Callable[[int, IntArray], Tensor]:
        """A function (start, ids) -> rows of Âz: `ids` are the layer's nodes from `start` on."""
        raise NotImplementedError

    @torch.no_grad()
    def __call__(
        self, nodes: IntArray, needed: list[IntArray], mixed: FeatureStore | None = None
    ) -> Tensor:
        """(len(nodes), d): rows of the last layer. `needed` are the nodes of each layer, ascending,
        from the input up; `mixed`, if known, gives rows of ÂX of `needed[1]`."""
        work = sum(map(len, needed if mixed is None else needed[1:]))
        with _evaluating(self.model), progress("Applying the network", work, "rows") as advance:
            self.advance = advance
            if len(needed) > 1 and mixed is None:
                self._read_features(needed[0])
            for number, above in enumerate(needed[1:]):
                wanted = needed[min(number + 2, len(needed) - 1)]
                self._layer(number, above, wanted, needed[-1], mixed if number == 0 else None)
            return self.h(nodes)

    def _inputs(self, ids: IntArray) -> Tensor:
        return dense(self.features.take(ids)).to(self.device)

    def _read_features(self, nodes: IntArray) -> None:
        self.z = RowBuffer(nodes, self.room)
        for start, ids in _chunks(nodes, _ROWS_AT_ONCE):
            self.z.put(start, self.model.convolutions[0].before(self._inputs(ids)))
            self.advance(len(ids))

    def _layer(
        self,
        number: int,
        nodes: IntArray,
        wanted: IntArray,
        asked: IntArray,
        mixed: FeatureStore | None,
    ) -> None:
        """H^(number+1) of `nodes`, or the product of it that the layer above starts with.

        `wanted` are those of `nodes` whose own rows a layer above may read; `nodes` itself if
        there is no layer above.
        """
        layer, last = self.model.convolutions[number], wanted is nodes
        upper = None if last else self.model.convolutions[number + 1]
        jumping = self.model.jumping != "none"
        kept = upper is None or upper.own_weight is not None or jumping
        convolved = self._convolution(number, mixed)
        rows, z = RowBuffer(wanted, self.room), RowBuffer(nodes, self.room)
        for start, ids in _chunks(nodes, self._at_once() if mixed is None else _ROWS_AT_ONCE):
            out = layer.finish(convolved(start, ids), self._own_rows(number, ids))
            out = self.model.activate(number, out)
            if upper is not None:
                z.put(start, upper.before(out))
            if kept:
                first = int(np.searchsorted(wanted, ids[0])) if len(ids) else 0
                stop = int(np.searchsorted(wanted, ids[-1] + 1)) if len(ids) else 0
                rows.put(first, rows_of(wanted[first:stop], ids, out))
            self.advance(len(ids))
        if kept:
            self.h = rows.take
        if jumping:
            self.hidden.append(RowBuffer.of(asked, self.h(asked)))
        self.z = z

    def _at_once(self) -> int:
        """Nodes that are mixed together."""
        return _NODES_AT_ONCE

    def _convolution(
        self, number: int, known: FeatureStore | None
    ) -> Callable[[int, IntArray], Tensor]:
        """ÂHW of some nodes of a layer, from z or from the `known` rows of ÂX."""
        layer = self.model.convolutions[number]
        if known is not None:
            return lambda start, ids: (
                known.between(start, start + len(ids)).to(self.device) @ layer.weight
            )
        mixed = self.mix(number)
        if layer.shrinks:
            return mixed
        return lambda start, ids: mixed(start, ids) @ layer.weight

    def _own_rows(self, number: int, ids: IntArray) -> Tensor | None:
        if self.model.jumps(number):
            return self.model.joined([rows.take(ids) for rows in self.hidden])
        return None if self.model.convolutions[number].own_weight is None else self.h(ids)


class _GraphForward(ExactForward):
    """The exact network in one process, which can read all rows of Â."""

    def __init__(
        self, model: GCN, source: AdjacencyRows, features: FeatureStore, room: Room | None
    ) -> None:
        super().__init__(model, features, room)
        self.source = source

    def mix(self, number: int) -> Callable[[int, IntArray], Tensor]:  # noqa: ARG002
        z, filled, numbered = self.z.rows, self.z, _numbering(self.z.nodes, self.source.n)
        below = torch.from_numpy(self.z.nodes)

        def mixed(_: int, ids: IntArray) -> Tensor:
            rows = self.source.rows(ids)
            csr = rows.indptr, numbered(rows.indices), rows.values
            if z.device.type == "cpu":
                return torch.from_numpy(filled.mixed(csr))
            return Block.of_csr(torch.from_numpy(ids), below, csr).to(z.device).mix(z)

        return mixed

    def _at_once(self) -> int:
        """If z is in a file, all of it is read for each chunk, so chunks are larger."""
        if self.room is None or not self.z.on_disk:
            return super()._at_once()
        row_bytes = 16 * self.z.rows.shape[1] + 2 * mean_row_bytes(self.source)
        return max(super()._at_once(), self.room.n_bytes // row_bytes)


def _numbering(nodes: IntArray, n: int) -> Callable[[IntArray], IntArray]:
    """A function from node ids to positions in `nodes`, ascending, by the cheapest method."""
    if len(nodes) == n:
        return lambda ids: ids
    if _few(len(nodes), n):
        return lambda ids: np.searchsorted(nodes, ids)
    places = np.zeros(n, np.int32)
    places[nodes] = np.arange(len(nodes), dtype=np.int32)
    return lambda ids: places[ids]


def needed_nodes(source: AdjacencyRows, nodes: IntArray, layers: int) -> list[IntArray]:
    """The nodes that each layer needs to compute `nodes`, ascending, from the input up."""
    sets = [nodes]
    for _ in range(layers):
        if 2 * len(sets[0]) > source.n:
            # Finding out which of the others are not needed costs more than computing them.
            sets.insert(0, np.arange(source.n))
            continue
        columns = [
            _distinct(source.rows(ids).indices, source.n)
            for _, ids in _chunks(sets[0], _NODES_AT_ONCE)
        ]
        # A node's own row is needed too; without loops, Â does not name it.
        sets.insert(0, _distinct(np.concatenate([sets[0], *columns]), source.n))
    return sets


def with_all_of_most(needed: list[IntArray], n: int) -> list[IntArray]:
    """The same sets, but with all n nodes in the first layer if it has most of them.

    The rows of ÂX that are kept then serve any other part that needs most of the graph.
    """
    if len(needed) < 3 or 2 * len(needed[1]) <= n:
        return needed
    return [needed[0], np.arange(n), *needed[2:]]


def _distinct(ids: IntArray, n: int) -> IntArray:
    """Ascending."""
    if _few(len(ids), n):
        return np.unique(ids)
    there = np.zeros(n, dtype=np.bool_)
    there[ids] = True
    return np.flatnonzero(there)


def _few(count: int, n: int) -> bool:
    """True if sorting or searching `count` ids costs less than a table over all n."""
    return 16 * count < n


def _chunks(ids: IntArray, size: int) -> Iterator[tuple[int, IntArray]]:
    """At least one chunk, so that an array filled from chunks always gets its width."""
    for start in range(0, max(len(ids), 1), size):
        yield start, ids[start : start + size]


@contextmanager
def _evaluating(model: Network) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def full_view(model: Network, graph: Graph) -> tuple[AdjacencyRows, NodeFeatures]:
    """The rows of Â and of X of a graph, as this network reads them."""
    return (
        NormalizedRows(GraphEdges(graph.csr), model.normalization),
        feature_rows(model, graph.features),
    )


def feature_rows(
    model: Network, features: FloatArray | csr_array, nodes: IntArray | None = None
) -> NodeFeatures:
    """The rows of a feature matrix, or of `nodes` only, scaled as this network expects."""
    return NodeFeatures(
        features, model.feature_scaling, nodes, model.feature_statistics, keep_pages=False
    )


def check_width(model: Network, width: int, who: str) -> None:
    """Refuse features of another width than the network was trained on."""
    if width != model.sizes[0]:
        raise InputError(f"the model was trained on {model.sizes[0]} features, {who} {width}")
