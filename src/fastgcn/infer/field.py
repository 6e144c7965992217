"""`ReceptiveField`: the part of a graph that one output of a network depends on.

The network is applied to it as it is (the result equals `predict`), with a node taken out, or with
gradients by what it reads. All of it costs as much as the field, however large the graph is.
"""

import copy
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.exact import feature_rows
from fastgcn.graph import checks
from fastgcn.graph.adjacency import has_loops, scaling_factors
from fastgcn.graph.edges import GraphEdges, row_chunks
from fastgcn.graph.graph import Graph
from fastgcn.memory import check_room
from fastgcn.model import GCN
from fastgcn.sampling.block import Block

# Numbers in the rows of X that are read together.
_NUMBERS_AT_ONCE = 1 << 23

# Training nodes whose mean is the baseline.
_MEAN_OF = 1_000

Inputs = tuple[Tensor, Tensor | None]  # XW of the field's nodes; XR of those that have a row


class ReceptiveField:
    """The nodes within M hops of one node, nearest first, where M is the depth of the network.

    Layer l reads the nodes within M - l hops, so the nodes of every layer are the first of `nodes`.

    Attributes:
        nodes: (k,) the nodes; the first is the one asked for.
        within: (M + 1,): how many of them are within 0, 1, ..., M hops.
        hops: (k,) the distance of each.
    """

    def __init__(self, model: GCN, graph: Graph, node: int) -> None:
        self.model = _on_cpu(model)
        self.graph, self.depth = graph, len(model.layers)
        self.edges = GraphEdges(graph.csr)
        self._kind, self._loops = model.normalization, has_loops(model.normalization)
        rings = [np.array([node], np.int64)]
        for _ in range(self.depth):
            columns = self.edges.cut(rings[-1], loops=False)[1]
            known = np.concatenate(rings)
            rings.append(np.setdiff1d(columns, known).astype(np.int64))
        self.nodes = np.concatenate(rings)
        self.within = np.cumsum([len(ring) for ring in rings])
        self.hops = np.repeat(np.arange(self.depth + 1), [len(ring) for ring in rings])
        count, named = len(self.nodes), checks.named(node, graph.node_ids)
        check_room(
            32 * count * model.sizes[1],
            f"the neighbourhood of {named} ({count:,} nodes)",
            "ask for a node with fewer neighbours",
        )
        self._read_edges()
        self.features = feature_rows(self.model, graph.features)

    def _read_edges(self) -> None:
        """The entries of Â: row offsets, columns, rows, unscaled values, and the sums of rows.

        Rows are those within M - 1 hops. A symmetric normalisation also depends on the sums of the
        outermost rows, so these are read too.
        """
        count = len(self.nodes) if self._kind == "symmetric" else int(self.within[-2])
        rows = self.nodes[:count]
        order = np.argsort(self.nodes)
        sorted_ids = self.nodes[order]
        parts = []
        csr = self.graph.csr
        for start, stop in row_chunks(csr.indptr[rows + 1] - csr.indptr[rows]):
            indptr, columns, values = self.edges.cut(rows[start:stop], loops=self._loops)
            place = np.searchsorted(sorted_ids, columns) % len(order)
            inside = sorted_ids[place] == columns
            row = np.repeat(np.arange(start, stop), np.diff(indptr))
            parts.append((row[inside], order[place[inside]], values[inside]))
        row, column, value = (np.concatenate(each) for each in zip(*parts, strict=True))
        self._row, self._column, self._value = row, column, value.astype(np.float64)
        self._indptr = np.searchsorted(row, np.arange(count + 1))
        self._sums = self.edges.sums(rows) + self._loops

    @cached_property
    def _entries_of(self) -> tuple[IntArray, IntArray]:
        """Entries in the order of their columns, and (k+1,) where each column begins."""
        order = np.argsort(self._column, kind="stable")
        return order, np.searchsorted(self._column[order], np.arange(len(self.nodes) + 1))

    @property
    def entries(self) -> int:
        """Entries of Â that the first layer multiplies by."""
        return int(self._indptr[self.within[-2]])

    def blocks(self, without: int | None = None) -> list[Block]:
        """The convolutions from the input up; `without` is a position in `nodes` to take out."""
        values, sums = self._value, self._sums
        if without is not None:
            order, starts = self._entries_of
            there = order[starts[without] : starts[without + 1]]
            values, sums = values.copy(), sums.copy()
            sums[self._row[there]] -= values[there]
            values[there] = 0
        factors = scaling_factors(sums, self._kind)
        scaled = values * factors[self._row]
        if self._kind == "symmetric":
            scaled *= factors[self._column]
        scaled = scaled.astype(np.float32)
        found, numbers = [], torch.from_numpy(self.nodes)
        for above, below in zip(self.within[-2::-1], self.within[:0:-1], strict=True):
            end = self._indptr[above]
            csr = self._indptr[: above + 1], self._column[:end], scaled[:end]
            found.append(Block.of_csr(numbers[:above], numbers[:below], csr))
        return found

    def inputs(self) -> Inputs:
        """The products of the nodes' rows of X with the weights of the first layer."""
        parts = [self._products(rows) for _, rows in self.rows()]
        own = None if parts[0][1] is None else torch.cat([part[1] for part in parts])  # type: ignore[misc]
        return torch.cat([part[0] for part in parts]), self._with_row(own)

    def average_inputs(self) -> Inputs:
        """The same, if every node had the `baseline` features."""
        z, own = self._products(self.baseline[None])
        own = None if own is None else own.expand(len(self.nodes), -1)
        return z.expand(len(self.nodes), -1), self._with_row(own)

    def _products(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        first = self.model.convolutions[0]
        with torch.no_grad():
            own = None if first.own_weight is None else rows @ first.own_weight
            return rows @ first.weight, own

    def _with_row(self, own: Tensor | None) -> Tensor | None:
        return None if own is None else own[: self.within[-2]]

    def rows(self, places: IntArray | None = None) -> Iterator[tuple[IntArray, Tensor]]:
        """Positions in `nodes`, of all or of some, and their rows of X (s, F), part after part."""
        places = np.arange(len(self.nodes)) if places is None else places
        step = max(1, _NUMBERS_AT_ONCE // max(self.features.width, 1))
        for start in range(0, len(places), step):
            some = places[start : start + step]
            yield some, self.features.take(self.nodes[some])

    @cached_property
    def baseline(self) -> Tensor:
        """(F,): what a feature is compared with: zero if X is sparse, else its mean over some
        training nodes."""
        nothing = torch.zeros(self.features.width)
        if self.features.sparse or self.model.feature_scaling == "standard":
            return nothing  # the mean of standardised features is zero
        train = self.graph.split.train
        size = train.size or self.graph.n_nodes
        places = np.unique(np.linspace(0, size - 1, min(size, _MEAN_OF)).astype(np.int64))
        return self.features.take(train[places] if train.size else places).mean(dim=0)

    def logits(self, blocks: list[Block], inputs: Inputs) -> Tensor:
        """(1, C): the network's outputs for the first node; differentiable by the inputs."""
        z, own = inputs
        first = self.model.convolutions[0]
        out = blocks[0].mix(z)
        if own is not None:
            out = out + own
        if first.bias is not None:
            out = out + first.bias
        h = self.model.activate(0, out)
        return self.model.onward(h, blocks[1:], 1, self.depth)

    def attributions(
        self, gradients: Inputs, places: IntArray | None = None
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """(x - baseline)·gradient of positions in `nodes`: (s, F), part after part.

        `gradients` are by XW and XR, so those by X are their products with Wᵀ and Rᵀ.
        """
        first = self.model.convolutions[0]
        by_mixed, by_own = gradients
        for some, rows in self.rows(places):
            at = torch.from_numpy(some)
            with torch.no_grad():
                by_x = by_mixed[at] @ first.weight.T
                if first.own_weight is not None and by_own is not None:
                    near = at < len(by_own)
                    by_x[near] += by_own[at[near]] @ first.own_weight.T
                yield some, ((rows - self.baseline) * by_x).numpy()


def _on_cpu(model: GCN) -> GCN:
    """The network on the CPU, in evaluation mode; a copy if it is elsewhere or in training."""
    if next(model.parameters()).device.type == "cpu" and not model.training:
        return model
    return copy.deepcopy(model).cpu().eval()
