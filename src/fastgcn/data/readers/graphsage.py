"""GraphSAGE: `PREFIX-G.json` and its companions, as PPI and Reddit were first published.

`-G.json` is networkx's node-link JSON, whose nodes carry `val` and `test`; `-id_map.json`
gives each node's row in `-feats.npy`; `-class_map.json` its class, or a list of 0 and 1.
"""

import re
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.data.readers.npz import read_npy
from fastgcn.data.readers.parts import (
    Edges,
    Reader,
    build,
    choice,
    identity,
    labels_of,
    need,
    one_of,
    read_json,
)
from fastgcn.errors import FormatError
from fastgcn.graph.checks import Split
from fastgcn.graph.graph import Graph
from fastgcn.progress import progress

_EXPECTS = "PREFIX-G.json, PREFIX-id_map.json, PREFIX-class_map.json and mostly PREFIX-feats.npy"
_GRAPH, _ROWS, _CLASSES = "-G.json", "-id_map.json", "-class_map.json"
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_LINKS = {"index": "positions in the list of nodes", "id": "ids of nodes"}


def _read(
    path: Path,
    *,
    name: str | None = None,
    prefix: str | None = None,
    links: str | None = None,
    directed: bool | None = None,
) -> Graph:
    """The data set in a folder, or that of a `-G.json` file.

    Args:
        path: the folder or the file.
        name: the graph's name; by default the prefix.
        prefix: which data set of a folder that has several.
        links: `index` if the ends of links are positions in the list of nodes (networkx 1),
            `id` if they are node ids (networkx 2 and later); None finds out, or fails if both
            are possible.
        directed: None does as the JSON says; False stores every edge both ways.

    Nodes keep the order of the feature rows. Nodes without `val` and `test` are in no part of
    the split. Without `-feats.npy`, the features are the nodes' `feature` lists; without these
    too, they are one-hot, as in GraphSAGE.
    """
    if links is not None:
        choice(links, _LINKS, "links")
    prefix = one_of(path, _prefixes(path), prefix, "prefix", _EXPECTS)
    folder = path if path.is_dir() else path.parent
    graph_file, rows_file, classes_file = need(
        folder, prefix + _GRAPH, prefix + _ROWS, prefix + _CLASSES
    )
    with progress(f"Reading {prefix}", 4, "steps") as advance:
        rows = _rows(rows_file)
        advance(1)
        graph = _node_link(graph_file)
        advance(1)
        node_rows = _node_rows(graph["nodes"], rows, graph_file)
        edges = _edges(graph, node_rows, links, graph_file)
        advance(1)
        labels = labels_of(read_json(classes_file), rows, len(rows), classes_file)
        advance(1)
    return build(
        graph_file,
        edges,
        n=len(rows),
        directed=bool(graph.get("directed", False)) if directed is None else directed,
        features=_features(folder / f"{prefix}-feats.npy", graph["nodes"], node_rows, len(rows)),
        labels=labels,
        split=_split(graph["nodes"], node_rows),
        node_ids=_own_ids(graph["nodes"], rows),
        name=name or prefix,
    )


def _prefixes(path: Path) -> list[str]:
    if path.is_dir():
        found = {f.name.removesuffix(end) for end in (_GRAPH, _ROWS) for f in path.glob("*" + end)}
        return sorted(found)
    return [path.name.removesuffix(_GRAPH)] if path.name.endswith(_GRAPH) else []


def _rows(path: Path) -> dict[str, int]:
    """Node id, as text, → row of the features; the rows are 0..n-1."""
    rows: dict[str, int] = read_json(path)
    if not all(isinstance(row, int) for row in rows.values()) or sorted(rows.values()) != list(
        range(len(rows))
    ):
        raise FormatError(f"{path} must give {len(rows)} nodes the rows 0 to {len(rows) - 1}")
    return rows


def _node_link(path: Path) -> dict[str, Any]:
    graph: dict[str, Any] = read_json(path)
    if "links" not in graph and "edges" in graph:  # networkx 3.4 and later
        graph["links"] = graph.pop("edges")
    for key in ("nodes", "links"):
        if not isinstance(graph.get(key), list):
            raise FormatError(f"{path} must have a list {key!r}, as networkx's node-link JSON has")
        if not all(isinstance(entry, dict) for entry in graph[key]):
            raise FormatError(f"{path}: the entries of {key!r} must be objects")
    return graph


def _node_rows(nodes: list[dict[str, Any]], rows: dict[str, int], path: Path) -> IntArray:
    """(len(nodes),) the row of each listed node."""
    for node in nodes:
        own = node.get("id")
        if not isinstance(own, int | str) or not _short(own) or str(own) not in rows:
            raise FormatError(
                f"{path}: every node must have an id that is in the id map, but "
                f"{shortened(own)} is not"
            )
    found = np.array([rows[str(node["id"])] for node in nodes], dtype=np.int64)
    if len(np.unique(found)) != len(found):
        raise FormatError(f"{path} lists a node twice")
    return found


def _edges(graph: dict[str, Any], node_rows: IntArray, links: str | None, path: Path) -> Edges:
    entries = graph["links"]
    try:
        ends = [link[key] for key in ("source", "target") for link in entries]
        if not all(map(_short, ends)):
            raise FormatError(f"{path} has a link to a number beyond 64 bits")
        distinct = set(ends)
    except (KeyError, TypeError):
        raise FormatError(f"{path}: every link must have a source and a target") from None
    positions = _positions(distinct, [node["id"] for node in graph["nodes"]], links, path)
    found = np.fromiter((positions[end] for end in ends), np.int64, len(ends))
    source, target = np.split(node_rows[found], 2)
    if not any("weight" in link for link in entries):
        return Edges(source, target)
    try:
        weights = np.array([link.get("weight", 1) for link in entries], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise FormatError(f"{path}: the weight of a link must be a number") from None
    return Edges(source, target, None if np.all(weights == 1) else weights)


def _positions(ends: set[Any], ids: list[Any], links: str | None, path: Path) -> dict[Any, int]:
    """The position in the list of nodes of each distinct end of a link."""
    by_id = {own: place for place, own in enumerate(ids)}
    meanings = {}
    if all(type(end) is int and 0 <= end < len(ids) for end in ends):
        meanings["index"] = {end: end for end in ends}
    if all(end in by_id for end in ends):
        meanings["id"] = {end: by_id[end] for end in ends}
    if links is not None and links not in meanings:
        raise FormatError(f"{path}: not every end of a link is one of the {_LINKS[links]}")
    if not meanings:
        raise FormatError(
            f"{path}: the ends of links must be {' or '.join(_LINKS.values())}, and some are not"
        )
    if links is None and len(meanings) == 2 and meanings["index"] != meanings["id"]:
        raise FormatError(
            f"{path}: the ends of links can be read as {' or '.join(_LINKS.values())}; "
            "pass links='index' (written by networkx 1) or links='id' (networkx 2 and later)"
        )
    return meanings[links or next(iter(meanings))]


def _features(path: Path, nodes: list[dict[str, Any]], node_rows: IntArray, n: int) -> Any:
    if path.is_file():
        return read_npy(path)
    for key in ("feature", "features"):
        if nodes and all(key in node for node in nodes):
            return _features_of_nodes([node[key] for node in nodes], node_rows, n, path)
    return identity(n)


def _features_of_nodes(lists: list[Any], node_rows: IntArray, n: int, path: Path) -> FloatArray:
    try:
        values = np.array(lists, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        values = np.empty(0, np.float64)
    if values.ndim != 2 or len(node_rows) != n:
        raise FormatError(
            f"{path} is missing, and the nodes' own features are not one list of numbers a node, "
            "all equally long"
        )
    features = np.empty_like(values)
    features[node_rows] = values
    return features


def _split(nodes: list[dict[str, Any]], node_rows: IntArray) -> Split:
    said = np.array(["val" in node and "test" in node for node in nodes], dtype=np.bool_)
    val = np.array([bool(node.get("val")) for node in nodes], dtype=np.bool_) & said
    test = np.array([bool(node.get("test")) for node in nodes], dtype=np.bool_) & said
    return Split(node_rows[said & ~val & ~test], node_rows[val], node_rows[test])


def _short(value: Any) -> bool:
    """False for an integer beyond 64 bits: many of these have one hash, so sets would be slow."""
    return type(value) is not int or -(2**63) <= value < 2**63


def _own_ids(nodes: list[dict[str, Any]], rows: dict[str, int]) -> list[Any] | None:
    """The ids in the order of the rows; None if they are the row numbers."""
    whole = all(type(node["id"]) is int for node in nodes)
    ids: list[Any] = [""] * len(rows)
    for key, row in rows.items():
        ids[row] = int(key) if whole and _NUMBER.fullmatch(key) else key
    return None if ids == list(range(len(ids))) else ids


GRAPHSAGE = Reader("graphsage", _EXPECTS, lambda path: bool(_prefixes(path)), _read)
