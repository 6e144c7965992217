"""FastGCN: graph convolutional networks trained by layer-wise importance sampling.

Everything public is named here. Names are loaded when they are first used, so that
`import fastgcn` is quick and does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastgcn._version import __version__

if TYPE_CHECKING:
    from fastgcn.adjacency import Adjacency, normalize, subgraph
    from fastgcn.config import TrainConfig
    from fastgcn.csr import Cleaning
    from fastgcn.data.generate import generate
    from fastgcn.data.generate_config import GenerateConfig
    from fastgcn.data.layout import fingerprint
    from fastgcn.data.load import load
    from fastgcn.data.store import open_store, save
    from fastgcn.errors import FastGCNError
    from fastgcn.estimator import FastGCNClassifier
    from fastgcn.graph import Graph, Split
    from fastgcn.inference import embed, evaluate, predict
    from fastgcn.metrics import Metrics
    from fastgcn.models import GCN
    from fastgcn.new_nodes import predict_new
    from fastgcn.presets import (
        authors_code,
        best_preset,
        graphsage,
        kipf_gcn,
        paper_cora,
        paper_pubmed,
        paper_reddit,
    )
    from fastgcn.propagation import propagate
    from fastgcn.runs import Run
    from fastgcn.samplers import Block, FullSampler, LayerSampler, Sampler
    from fastgcn.samplers.neighbor import NeighborSampler
    from fastgcn.tensorboard import TensorBoardLogger
    from fastgcn.train import fit, resume

# Where each public name lives, in the order of the walk of the data.
_HOME = {
    "load": "fastgcn.data.load",
    "save": "fastgcn.data.store",
    "open_store": "fastgcn.data.store",
    "fingerprint": "fastgcn.data.layout",
    "generate": "fastgcn.data.generate",
    "GenerateConfig": "fastgcn.data.generate_config",
    "Graph": "fastgcn.graph",
    "Split": "fastgcn.graph",
    "Cleaning": "fastgcn.csr",
    "normalize": "fastgcn.adjacency",
    "subgraph": "fastgcn.adjacency",
    "Adjacency": "fastgcn.adjacency",
    "propagate": "fastgcn.propagation",
    "Block": "fastgcn.samplers",
    "Sampler": "fastgcn.samplers",
    "LayerSampler": "fastgcn.samplers",
    "FullSampler": "fastgcn.samplers",
    "NeighborSampler": "fastgcn.samplers.neighbor",
    "GCN": "fastgcn.models",
    "TrainConfig": "fastgcn.config",
    "best_preset": "fastgcn.presets",
    "paper_cora": "fastgcn.presets",
    "paper_pubmed": "fastgcn.presets",
    "paper_reddit": "fastgcn.presets",
    "authors_code": "fastgcn.presets",
    "kipf_gcn": "fastgcn.presets",
    "graphsage": "fastgcn.presets",
    "fit": "fastgcn.train",
    "resume": "fastgcn.train",
    "Run": "fastgcn.runs",
    "predict": "fastgcn.inference",
    "predict_new": "fastgcn.new_nodes",
    "embed": "fastgcn.inference",
    "evaluate": "fastgcn.inference",
    "Metrics": "fastgcn.metrics",
    "FastGCNClassifier": "fastgcn.estimator",
    "TensorBoardLogger": "fastgcn.tensorboard",
    "FastGCNError": "fastgcn.errors",
}

__all__ = [  # noqa: RUF022  (in the order of the walk of the data)
    "__version__",
    "load",
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
    "GCN",
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
    "predict",
    "predict_new",
    "embed",
    "evaluate",
    "Metrics",
    "FastGCNClassifier",
    "TensorBoardLogger",
    "FastGCNError",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fastgcn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
