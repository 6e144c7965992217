"""Exact inference of a network, layer by layer over all nodes, in chunks of bounded size."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fastgcn.arrays import IntArray
from fastgcn.errors import InputError
from fastgcn.features.sparse import dense
from fastgcn.features.store import DenseStore, FeatureStore
from fastgcn.graph.adjacency import Adjacency
from fastgcn.loader.batch import EdgeBlock, Matrix, edge_block
from fastgcn.progress import progress
from fastgcn.sampling.neighborhood import FullSampler

# step(number, h, block): rows of block.dst after layer `number`, from rows h of block.src.
Step = Callable[[int, Any, EdgeBlock], Tensor]

# A chunk has about so many bytes of messages, one row an edge.
_CHUNK_BYTES = 1 << 27


def layerwise(
    step: Step | Sequence[Callable[..., Tensor]],
    adjacency: Adjacency,
    features: FeatureStore,
    *,
    layers: int,
    matrix: Matrix,
    nodes: IntArray | None = None,
    batch_size: int | None = None,
    device: torch.device | None = None,
    sparse: bool = False,
) -> Tensor:
    """(n, C), or (len(nodes), C): the rows after the last layer, with all neighbours.

    In memory are the rows of two layers, (n, d) each, and one chunk: `batch_size` nodes and their
    neighbours, or without it so many nodes that their messages take about 128 MB.

    Args:
        step: `step(number, h, block)` gives the rows of `block.dst` after layer `number`, counted
            from 0, from the rows h of `block.src`; or a sequence with a `layer(h, block)` for each
            layer. Modules, and modules whose methods these are, are in evaluation mode meanwhile.
    """
    steps = _steps(step, layers)
    exact = Matrix(matrix.normalization, matrix.loops, True, matrix.weights)
    sampler = FullSampler(adjacency, 1)
    rows: FeatureStore = features
    everyone = np.arange(adjacency.n)
    result: Tensor | None = None
    with _evaluating(step), torch.no_grad():
        for number, layer in enumerate(steps):
            asked = everyone if nodes is None or number + 1 < layers else nodes
            result = None
            with progress(f"Layer {number + 1} of {layers}", len(asked), "nodes") as advance:
                for start, stop in _chunks(adjacency, asked, rows.width, batch_size):
                    (block,) = sampler.sample(torch.from_numpy(asked[start:stop]))
                    h = rows.take(block.src.numpy())
                    h = h if sparse else dense(h)
                    edges = edge_block(block, exact, own_rows=True)
                    if device is not None:
                        h, edges = h.to(device), edges.to(device)
                    made = _checked(layer(h, edges), number, stop - start)
                    if result is None:
                        result = torch.empty(len(asked), *made.shape[1:], dtype=made.dtype)
                    result[start:stop] = made
                    advance(stop - start)
            assert result is not None
            if number + 1 < layers:
                rows = DenseStore(result.numpy())
    assert result is not None
    return result


def _steps(
    step: Step | Sequence[Callable[..., Tensor]], layers: int
) -> list[Callable[[Any, EdgeBlock], Tensor]]:
    if isinstance(step, Sequence | nn.ModuleList):
        if len(step) != layers:
            raise InputError(
                f"there are {len(step)} layers to infer with and the loader has {layers}; give "
                f"the loader samples of {len(step)} numbers, one for each layer"
            )
        return list(step)
    if not callable(step):
        raise InputError(
            "infer takes step(number, h, block), which gives the rows of block.dst, or a sequence "
            f"of such layers, got {type(step).__name__}"
        )

    def bind(number: int) -> Callable[[Any, EdgeBlock], Tensor]:
        return lambda h, block: step(number, h, block)

    return [bind(number) for number in range(layers)]


def _checked(made: Any, number: int, rows: int) -> Tensor:
    if not isinstance(made, Tensor) or made.ndim != 2 or len(made) != rows:
        got = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise InputError(
            f"layer {number} must give ({rows}, d), a row for each node of block.dst, got {got}"
        )
    return made.detach()


def _chunks(
    adjacency: Adjacency, nodes: IntArray, width: int, batch_size: int | None
) -> Iterator[tuple[int, int]]:
    """Ranges of `nodes`, at least one each."""
    if batch_size is not None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        for start in range(0, len(nodes), batch_size):
            yield start, min(start + batch_size, len(nodes))
        return
    entries = adjacency.indptr[nodes + 1] - adjacency.indptr[nodes] + 1
    chunk = max(1, _CHUNK_BYTES // (4 * max(width, 1)))
    ends, start = np.cumsum(entries), 0
    while start < len(nodes):
        done = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, done + chunk, side="right"))
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


@contextmanager
def _evaluating(step: Any) -> Iterator[None]:
    """Evaluation mode, without dropout, for the modules behind `step`."""
    parts = list(step) if isinstance(step, Sequence | nn.ModuleList) else [step]
    owners = [each if isinstance(each, nn.Module) else getattr(each, "__self__", None)
              for each in parts]  # fmt: skip
    modules = {m for each in owners if isinstance(each, nn.Module) for m in each.modules()}
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
