"""`convolve`: a convolution of PyG on a sampled block, with the weights that keep it right.

An operator of PyG treats a block's edges as if they were all edges. What a sampled edge must count
for instead depends on how the operator combines messages:

* a **sum** (GINConv, GraphConv, GCNConv): each message is multiplied by w(v,u) (`EdgeBlock`), and
  the sum is unbiased;
* a **mean** (SAGEConv, GMMConv): the rows of M sum to one, so the mean is the same weighted sum.
  PyG divides by the number of edges of a row, so that number is multiplied in;
* an **attention** (GATConv, GATv2Conv): α(v,u) ∝ w(v,u)·exp(logit). This is a ratio of two
  unbiased sums; its bias falls as 1/t.

PyG calls hooks with the messages and the attention, which is where the weights come in, so the
operators stay as they are.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fastgcn.errors import InputError, library
from fastgcn.loader.batch import EdgeBlock

# Operators whose result is linear in what they aggregate, and those that attend in `edge_update`.
_LINEAR = (
    "GCNConv", "SAGEConv", "GraphConv", "GINConv", "GINEConv", "GMMConv", "NNConv", "SimpleConv",
)  # fmt: skip
_ATTENDING = ("GATConv", "GATv2Conv")
_SUMS, _MEANS = ("sum", "add"), ("mean",)


def convolve(conv: nn.Module, h: Tensor, block: EdgeBlock, **further: Any) -> Tensor:
    """(s, d'): a convolution of PyG, applied to rows h (k, d) of a block's `src`.

    Use it in place of `conv(h, edge_index)`. `further` are arguments of the operator, such as
    `edge_attr` with a row for each edge of the block. Where nothing is sampled, the result is the
    operator's own on the whole graph.

    Operators: GCNConv(normalize=False), SAGEConv, GraphConv, GINConv, GINEConv, GMMConv, NNConv
    and SimpleConv with a sum or mean; GATConv and GATv2Conv(add_self_loops=False). On blocks that
    hold all neighbours, others run as well.
    """
    kind = _kind(conv, block)
    _check_device(conv, h)
    x: Any = (h, block.own(h))
    options = {"size": block.size} | further if _takes_size(conv.forward) else further
    if kind == "GCNConv":
        # It refuses bipartite blocks. As `src` begins with `dst`, the block is also a square graph
        # of k nodes, of which the first s are asked for.
        x, options = h, further
    with _weighted(conv, kind, block):
        made: Tensor = conv(x, block.edge_index, **options)
    return made[: block.n_dst]


def _takes_size(forward: Callable[..., Any]) -> bool:
    """False for operators that read the size from the rows alone."""
    return "size" in inspect.signature(forward).parameters


def _kind(conv: nn.Module, block: EdgeBlock) -> str:
    """Which of the operators above it is, or "other" on an exact block; refuses what is wrong."""
    operators = library("torch_geometric.nn", extra="pyg")
    name = type(conv).__name__
    if not isinstance(conv, operators.MessagePassing):
        raise InputError(
            f"convolve takes a convolution of PyG, got {name}; in plain torch, block.mix(h) is the "
            "weighted sum over the neighbours and block.own(h) are the nodes' own rows"
        )
    for kind in (*_ATTENDING, *_LINEAR):
        if isinstance(conv, getattr(operators, kind)):
            _check_operator(conv, kind, name, block)
            return kind if kind in _ATTENDING or _combines(conv) else "other"
    if not block.matrix.exact:
        raise InputError(
            f"{name} cannot take the weights of a sampled block; use one of "
            f"{', '.join((*_LINEAR, *_ATTENDING))}, multiply its messages by block.edge_weight "
            "yourself, or take sampler='full', which samples nothing"
        )
    return "other"


def _combines(conv: Any) -> bool:
    return conv.aggr in (*_SUMS, *_MEANS)


def _check_operator(conv: Any, kind: str, name: str, block: EdgeBlock) -> None:
    matrix = block.matrix
    if kind in _ATTENDING:
        if conv.add_self_loops:
            raise InputError(
                f"{name} would add loops that no sampler knows of; make it with "
                "add_self_loops=False, and the loader with normalization='none', self_loops=True"
            )
        if matrix.normalization not in ("none", None):
            raise InputError(
                f"{name} attends by itself, so the entries of a normalised matrix would count "
                "twice; make the loader with normalization='none', self_loops=True"
            )
        return
    if kind == "GCNConv" and conv.normalize:
        raise InputError(
            "GCNConv would normalise the sampled edges again; make it with normalize=False, and "
            "the loader with normalization='symmetric'"
        )
    if conv.aggr in _MEANS and matrix.normalization in ("symmetric", "none"):
        raise InputError(
            f"{name} takes the mean of the neighbours, whose weights must sum to one; make the "
            "loader with normalization='neighbors'"
        )
    if not _combines(conv) and not matrix.exact:
        raise InputError(
            f"{name}(aggr={conv.aggr!r}) cannot take the weights of a sampled block, because "
            f"{conv.aggr} over a sample is not {conv.aggr} over all neighbours; use aggr='mean' or "
            "'sum', or sampler='full', which samples nothing"
        )


def _check_device(conv: nn.Module, h: Tensor) -> None:
    weight = next(conv.parameters(), None)
    if weight is not None and weight.device != h.device:
        raise InputError(
            f"the rows are on {h.device} and the operator's weights on {weight.device}; make the "
            f"loader with device={str(weight.device)!r}"
        )


@contextmanager
def _weighted(conv: Any, kind: str, block: EdgeBlock) -> Iterator[None]:
    if kind in _ATTENDING:
        with _weighted_attention(conv, block):
            yield
    elif kind == "other":
        yield
    else:
        with _weighted_messages(conv, _factors(conv, block)):
            yield


def _factors(conv: Any, block: EdgeBlock) -> Tensor:
    """(E,): what each message is multiplied by."""
    if conv.aggr in _SUMS:
        return block.edge_weight
    v = block.edge_index[1]
    return block.edge_weight * torch.bincount(v, minlength=block.n_dst)[v]


@contextmanager
def _weighted_messages(conv: Any, factors: Tensor) -> Iterator[None]:
    def multiply(_: nn.Module, __: Any, messages: Tensor) -> Tensor:
        return messages * _as_column(factors, messages)

    with _hook(conv.register_message_forward_hook, multiply):
        yield


@contextmanager
def _weighted_attention(conv: Any, block: EdgeBlock) -> Iterator[None]:
    """softmax(logits + log w), from the softmax over the sampled edges that PyG computes.

    Dropout would come before the division by the row's sum, and so is done here, after it.
    """
    v, rate = block.edge_index[1], conv.dropout

    def divide(_: nn.Module, __: Any, alpha: Tensor) -> Tensor:
        weighted = alpha * _as_column(block.edge_weight, alpha)
        sums = alpha.new_zeros(block.n_dst, *alpha.shape[1:]).index_add(0, v, weighted)
        tiny = torch.finfo(alpha.dtype).tiny  # a row whose edges all weigh nothing stays zero
        alpha = weighted / sums.clamp_min(tiny).index_select(0, v)
        return nn.functional.dropout(alpha, rate, conv.training)

    conv.dropout = 0.0
    try:
        with _hook(conv.register_edge_update_forward_hook, divide):
            yield
    finally:
        conv.dropout = rate


def _as_column(weights: Tensor, like: Tensor) -> Tensor:
    return weights.to(like.dtype).view(-1, *(1 for _ in like.shape[1:]))


@contextmanager
def _hook(register: Callable[[Any], Any], function: Any) -> Iterator[None]:
    handle = register(function)
    try:
        yield
    finally:
        handle.remove()
