"""Samplers: who makes the blocks. Every algorithm is one of these plus a network."""

from fastgcn.samplers.block import Block, Sampler
from fastgcn.samplers.full import FullSampler
from fastgcn.samplers.layer import LayerSampler

__all__ = ["Block", "FullSampler", "LayerSampler", "Sampler"]
