"""Graphs from and to scipy, networkx and PyG; `Graph.from_*` and `Graph.to_*` call these."""

from fastgcn.data.convert.nx import from_networkx, to_networkx
from fastgcn.data.convert.pyg import from_pyg, to_pyg
from fastgcn.data.convert.sparse import from_scipy, to_scipy

__all__ = ["from_networkx", "from_pyg", "from_scipy", "to_networkx", "to_pyg", "to_scipy"]
