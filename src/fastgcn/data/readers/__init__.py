"""Readers of published formats, one module each; `fastgcn.data.load` chooses among them."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fastgcn.data.readers import (
    gnn_benchmark,
    graphsage,
    graphsaint,
    npz_folder,
    ogb,
    planetoid,
    reddit_dgl,
    reddit_fastgcn,
    tables,
)
from fastgcn.graph.graph import Graph


class Reader(Protocol):
    """What every reader's module has.

    `read` takes the path and the format's own options by keyword; `matches` looks only at file
    names, and at few enough of them to notice a folder that lacks a piece.
    """

    @property
    def FORMAT(self) -> str: ...  # noqa: N802  (a module's constants)

    @property
    def EXPECTS(self) -> str: ...  # noqa: N802

    @property
    def matches(self) -> Callable[[Path], bool]: ...

    @property
    def read(self) -> Callable[..., Graph]: ...


READERS: tuple[Reader, ...] = (
    planetoid,
    graphsage,
    graphsaint,
    ogb,
    reddit_fastgcn,
    reddit_dgl,
    gnn_benchmark,
    npz_folder,
    tables,
)
