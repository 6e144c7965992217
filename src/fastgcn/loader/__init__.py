"""Sampled minibatches for any PyTorch network, and exact inference for such a network."""

from fastgcn.loader.batch import EdgeBlock, LayerBatch
from fastgcn.loader.loader import LayerLoader
from fastgcn.loader.operators import convolve

__all__ = ["EdgeBlock", "LayerBatch", "LayerLoader", "convolve"]
