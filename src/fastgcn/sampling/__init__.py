"""Samplers: who makes the blocks. Every algorithm is one of these plus a network."""

from fastgcn.sampling.block import Block, LayerRows, Sampler
from fastgcn.sampling.layer import LayerSampler
from fastgcn.sampling.neighborhood import FullSampler

__all__ = ["Block", "FullSampler", "LayerRows", "LayerSampler", "Sampler"]
