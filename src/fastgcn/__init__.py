"""FastGCN: graph convolutional networks trained by layer-wise importance sampling.

Everything public is named here. Names are loaded when they are first used, so that
`import fastgcn` is quick and does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastgcn._version import __version__

if TYPE_CHECKING:
    from fastgcn.config import TrainConfig
    from fastgcn.data.generate import generate
    from fastgcn.data.generate_config import GenerateConfig
    from fastgcn.data.layout import fingerprint
    from fastgcn.data.load import load
    from fastgcn.data.splits import random_split
    from fastgcn.data.store import open_store, save
    from fastgcn.data.structure import structural_features
    from fastgcn.errors import DivergedError, FastGCNError
    from fastgcn.estimator import FastGCNClassifier, FastGCNRegressor
    from fastgcn.features.propagate import propagate
    from fastgcn.graph.adjacency import Adjacency, normalize
    from fastgcn.graph.checks import Split
    from fastgcn.graph.csr import Cleaning
    from fastgcn.graph.graph import Graph, subgraph
    from fastgcn.infer.explain import Explanation, explain
    from fastgcn.infer.export import Neighborhood, export, neighborhood
    from fastgcn.infer.new_nodes import embed_new, predict_new
    from fastgcn.infer.predict import embed, evaluate, predict
    from fastgcn.loader.batch import EdgeBlock, LayerBatch
    from fastgcn.loader.loader import LayerLoader
    from fastgcn.loader.operators import convolve
    from fastgcn.metrics import Metrics
    from fastgcn.model import GCN
    from fastgcn.report.notebook import confusion, plot
    from fastgcn.sampling.block import Block, Sampler
    from fastgcn.sampling.check import check_sampler, tiny_graphs
    from fastgcn.sampling.layer import LayerSampler
    from fastgcn.sampling.neighborhood import FullSampler, NeighborSampler
    from fastgcn.train.callbacks import Callback, EarlyStop, KeepWeights
    from fastgcn.train.loggers import MLflowLogger, TensorBoardLogger, WandbLogger
    from fastgcn.train.loop import fit, resume
    from fastgcn.train.presets import (
        authors_code,
        best_preset,
        graphsage,
        kipf_gcn,
        paper_cora,
        paper_pubmed,
        paper_reddit,
    )
    from fastgcn.train.run import Run
    from fastgcn.tuning.study import Tuning, tune

# The module of each public name, in the order in which data pass through them.
_HOME = {
    "load": "fastgcn.data.load",
    "random_split": "fastgcn.data.splits",
    "structural_features": "fastgcn.data.structure",
    "save": "fastgcn.data.store",
    "open_store": "fastgcn.data.store",
    "fingerprint": "fastgcn.data.layout",
    "generate": "fastgcn.data.generate",
    "GenerateConfig": "fastgcn.data.generate_config",
    "Graph": "fastgcn.graph.graph",
    "Split": "fastgcn.graph.checks",
    "Cleaning": "fastgcn.graph.csr",
    "normalize": "fastgcn.graph.adjacency",
    "subgraph": "fastgcn.graph.graph",
    "Adjacency": "fastgcn.graph.adjacency",
    "propagate": "fastgcn.features.propagate",
    "Block": "fastgcn.sampling",
    "Sampler": "fastgcn.sampling",
    "LayerSampler": "fastgcn.sampling",
    "FullSampler": "fastgcn.sampling",
    "NeighborSampler": "fastgcn.sampling.neighborhood",
    "check_sampler": "fastgcn.sampling.check",
    "tiny_graphs": "fastgcn.sampling.check",
    "GCN": "fastgcn.model",
    "LayerLoader": "fastgcn.loader.loader",
    "LayerBatch": "fastgcn.loader.batch",
    "EdgeBlock": "fastgcn.loader.batch",
    "convolve": "fastgcn.loader.operators",
    "TrainConfig": "fastgcn.config",
    "best_preset": "fastgcn.train.presets",
    "paper_cora": "fastgcn.train.presets",
    "paper_pubmed": "fastgcn.train.presets",
    "paper_reddit": "fastgcn.train.presets",
    "authors_code": "fastgcn.train.presets",
    "kipf_gcn": "fastgcn.train.presets",
    "graphsage": "fastgcn.train.presets",
    "fit": "fastgcn.train.loop",
    "resume": "fastgcn.train.loop",
    "Run": "fastgcn.train.run",
    "tune": "fastgcn.tuning.study",
    "Tuning": "fastgcn.tuning.study",
    "predict": "fastgcn.infer.predict",
    "predict_new": "fastgcn.infer.new_nodes",
    "embed": "fastgcn.infer.predict",
    "embed_new": "fastgcn.infer.new_nodes",
    "explain": "fastgcn.infer.explain",
    "Explanation": "fastgcn.infer.explain",
    "export": "fastgcn.infer.export",
    "neighborhood": "fastgcn.infer.export",
    "Neighborhood": "fastgcn.infer.export",
    "evaluate": "fastgcn.infer.predict",
    "Metrics": "fastgcn.metrics",
    "confusion": "fastgcn.report.notebook",
    "plot": "fastgcn.report.notebook",
    "FastGCNClassifier": "fastgcn.estimator",
    "FastGCNRegressor": "fastgcn.estimator",
    "Callback": "fastgcn.train.callbacks",
    "EarlyStop": "fastgcn.train.callbacks",
    "KeepWeights": "fastgcn.train.callbacks",
    "TensorBoardLogger": "fastgcn.train.loggers",
    "MLflowLogger": "fastgcn.train.loggers",
    "WandbLogger": "fastgcn.train.loggers",
    "FastGCNError": "fastgcn.errors",
    "DivergedError": "fastgcn.errors",
}

__all__ = [  # noqa: RUF022  (in the order in which data pass through them)
    "__version__",
    "load",
    "random_split",
    "structural_features",
    "save",
    "open_store",
    "fingerprint",
    "generate",
    "GenerateConfig",
    "Graph",
    "Split",
    "Cleaning",
    "normalize",
    "subgraph",
    "Adjacency",
    "propagate",
    "Block",
    "Sampler",
    "LayerSampler",
    "FullSampler",
    "NeighborSampler",
    "check_sampler",
    "tiny_graphs",
    "GCN",
    "LayerLoader",
    "LayerBatch",
    "EdgeBlock",
    "convolve",
    "TrainConfig",
    "best_preset",
    "paper_cora",
    "paper_pubmed",
    "paper_reddit",
    "authors_code",
    "kipf_gcn",
    "graphsage",
    "fit",
    "resume",
    "Run",
    "tune",
    "Tuning",
    "predict",
    "predict_new",
    "embed",
    "embed_new",
    "explain",
    "Explanation",
    "export",
    "neighborhood",
    "Neighborhood",
    "evaluate",
    "Metrics",
    "confusion",
    "plot",
    "FastGCNClassifier",
    "FastGCNRegressor",
    "Callback",
    "EarlyStop",
    "KeepWeights",
    "TensorBoardLogger",
    "MLflowLogger",
    "WandbLogger",
    "FastGCNError",
    "DivergedError",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fastgcn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
