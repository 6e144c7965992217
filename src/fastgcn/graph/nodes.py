"""Node sets as people write them, and nodes by the names that people know them by."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastgcn.arrays import IntArray
from fastgcn.errors import FormatError, InputError, MissingFileError
from fastgcn.graph import checks
from fastgcn.graph.graph import Graph


def parse_nodes(graph: Graph, text: str | None) -> IntArray:
    """Node numbers from `all`, `train`, `val`, `test`, own ids with commas, or @FILE.

    >>> g = Graph.from_edges([0], [1], features=np.eye(3), node_ids=["a", "b", "c"])
    >>> parse_nodes(g, "c,a").tolist()
    [2, 0]
    """
    if text is None or text == "all":
        return np.arange(graph.n_nodes)
    parts = dict(graph.split.items())
    if text in parts:
        if not parts[text].size:
            raise InputError(f"the {text} part of {graph.name}'s split is empty")
        return parts[text]
    if text.startswith("@"):
        try:
            # Windows' editors put a mark before the text, which is no part of the first id.
            words = Path(text[1:]).read_text(encoding="utf-8-sig").split("\n")
        except FileNotFoundError:
            raise MissingFileError(f"there is no file {text[1:]} with node ids") from None
        except UnicodeDecodeError:
            raise FormatError(f"{text[1:]} must be UTF-8 text, but is not") from None
    else:
        words = text.split(",")
    return positions(graph, [word.strip() for word in words if word.strip()])


def positions(graph: Graph, words: Sequence[str]) -> IntArray:
    """Numbers of the nodes whose own ids are written so."""
    if not words:
        raise InputError("no node ids were given")
    found = old_positions(graph, words)
    unknown = [word for word in words if word not in found]
    if unknown:
        raise InputError(
            f"{graph.name} has no node {unknown[0]!r} "
            f"({len(unknown):,} unknown ids of {len(words):,})"
        )
    return np.array([found[word] for word in words], dtype=np.int64)


def old_positions(graph: Graph, wanted: Iterable[Any]) -> dict[Any, int]:
    """Numbers of the graph's nodes by own id, an id matching if it is written the same.

    Ids that the graph does not have are left out.
    """
    by_text = {str(word): word for word in wanted}
    if graph.node_ids is None:
        numbers = ((word, int(text)) for text, word in by_text.items() if text.isdecimal())
        return {word: i for word, i in numbers if i < graph.n_nodes}
    if isinstance(graph.node_ids, np.ndarray):
        numbers_wanted = [int(text) for text in by_text if text.lstrip("-").isdecimal()]
        hits = np.flatnonzero(np.isin(graph.node_ids, numbers_wanted))
        return {by_text[str(graph.node_ids[i])]: int(i) for i in hits}
    return {by_text[str(own)]: i for i, own in enumerate(graph.node_ids) if str(own) in by_text}


def own_ids(graph: Graph, nodes: IntArray) -> list[Any]:
    """What the user calls these nodes."""
    if graph.node_ids is None:
        return list(map(int, nodes))
    return [checks.plain(graph.node_ids[int(i)]) for i in nodes]
