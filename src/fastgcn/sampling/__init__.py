"""Samplers: who makes the blocks. Every algorithm is one of these plus a network."""

from fastgcn.sampling.block import Block, Sampler
from fastgcn.sampling.layer import LayerSampler
from fastgcn.sampling.neighborhood import FullSampler

__all__ = ["Block", "FullSampler", "LayerSampler", "Sampler"]
