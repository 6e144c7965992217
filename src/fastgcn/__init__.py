"""FastGCN: graph convolutional networks trained by layer-wise importance sampling.

Everything public is named here. Names are loaded when they are first used, so that
`import fastgcn` is quick and does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastgcn._version import __version__

if TYPE_CHECKING:
    from fastgcn.adjacency import Adjacency, normalize, subgraph
    from fastgcn.csr import Cleaning
    from fastgcn.data.layout import fingerprint
    from fastgcn.data.load import load
    from fastgcn.data.store import open_store, save
    from fastgcn.errors import FastGCNError
    from fastgcn.graph import Graph, Split

_HOME = {
    "Adjacency": "fastgcn.adjacency",
    "Cleaning": "fastgcn.csr",
    "FastGCNError": "fastgcn.errors",
    "Graph": "fastgcn.graph",
    "Split": "fastgcn.graph",
    "fingerprint": "fastgcn.data.layout",
    "load": "fastgcn.data.load",
    "normalize": "fastgcn.adjacency",
    "open_store": "fastgcn.data.store",
    "save": "fastgcn.data.store",
    "subgraph": "fastgcn.adjacency",
}

__all__ = [  # noqa: RUF022  (in the order of the walk of the data)
    "__version__",
    "load",
    "save",
    "open_store",
    "fingerprint",
    "Graph",
    "Split",
    "Cleaning",
    "normalize",
    "subgraph",
    "Adjacency",
    "FastGCNError",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fastgcn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
