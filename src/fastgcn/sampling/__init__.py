"""Samplers, which make the blocks. Every algorithm is one of these plus a network."""

from collections.abc import Sequence

from fastgcn.config import TrainConfig
from fastgcn.graph.adjacency import Adjacency
from fastgcn.graph.csr import CSR
from fastgcn.sampling.block import Block, LayerRows, Sampler
from fastgcn.sampling.history import HistorySampler
from fastgcn.sampling.layer import LayerSampler
from fastgcn.sampling.neighborhood import FullSampler

__all__ = ["Block", "FullSampler", "LayerRows", "LayerSampler", "Sampler"]


def make_sampler(config: TrainConfig, adjacency: Adjacency, edges: CSR | None) -> Sampler:
    """The sampler of a config on a training graph, given by Â and, for GraphSAGE, its edges."""
    if config.neighbor_sampling:
        from fastgcn.sampling.neighborhood import NeighborSampler  # loads numba

        assert edges is not None
        return NeighborSampler(edges, config.fanouts, include_self=config.method == "graphsage-gcn")
    if config.method != "fastgcn":
        return FullSampler(adjacency, config.sampled_layers)
    sampler = layer_sampler(config, adjacency, config.layer_samples, own_rows=config.needs_own_rows)
    return HistorySampler(sampler, config.history_every) if config.history else sampler


def layer_sampler(
    config: TrainConfig, adjacency: Adjacency, samples: Sequence[int], *, own_rows: bool
) -> LayerSampler:
    """FastGCN's sampler with a config's choices and these sample sizes."""
    return LayerSampler(
        adjacency,
        samples,
        distribution=config.distribution,
        power=config.power,
        draws=config.draws,
        self_term=config.self_term,
        own_rows=own_rows,
        neighbors_only=config.neighbors_only,
        correct_weights=config.correct_weights,
    )
