"""GraphSAGE's JSON files, with links as networkx 1 and as later versions write them."""

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from fastgcn import Graph
from fastgcn.data.readers.graphsage import GRAPHSAGE
from fastgcn.errors import FormatError, InputError, MissingFileError
from tests.data.readers.toy import SOURCE, TARGET, assert_same, multilabel, toy
from tests.strategies import split_of

ORDER = [3, 0, 7, 5, 1, 6, 2, 4]  # the order in which the nodes are listed
NAMES = [f"t3_{node}" for node in range(8)]
WRONG_WAY_ROUND = [7, 6, 5, 4, 3, 2, 1, 0]  # ids that are also positions, of other nodes


def write(folder: Path, graph: Graph, ids: Any = NAMES, links: str = "index") -> Path:
    """`ids` are the nodes' own, in the order of the feature rows."""
    parts = {int(i): part for part, nodes in graph.split.items() for i in nodes}
    nodes: list[dict[str, Any]] = [{"id": ids[node]} for node in ORDER]
    for entry, node in zip(nodes, ORDER, strict=True):
        if node in parts:
            entry |= {"val": parts[node] == "val", "test": parts[node] == "test"}
    end = ORDER.index if links == "index" else ids.__getitem__
    content = {
        "directed": False,
        "graph": {"name": "toy"},
        "multigraph": False,
        "nodes": nodes,
        "links": [
            {"source": end(a), "target": end(b), "test_removed": False}
            for a, b in zip(SOURCE, TARGET, strict=True)
        ],
    }
    assert graph.labels is not None
    classes = {
        str(ids[node]): label.astype(int).tolist()
        for node, label in enumerate(graph.labels)
        if label.ndim or label >= 0
    }
    put(folder, "G", content)
    put(folder, "id_map", {str(own): node for node, own in enumerate(ids)})
    put(folder, "class_map", classes)
    np.save(folder / "toy-feats.npy", graph.features)
    return folder


def put(folder: Path, part: str, content: Any) -> None:
    (folder / f"toy-{part}.json").write_text(json.dumps(content))


def get(folder: Path, part: str) -> Any:
    return json.loads((folder / f"toy-{part}.json").read_text())


@pytest.mark.parametrize("links", ["index", "id"])
def test_reads_back_what_was_written(tmp_path: Path, links: str) -> None:
    graph = GRAPHSAGE.read(write(tmp_path, toy(), links=links))
    assert_same(graph, toy())
    assert graph.node_ids is not None
    assert list(graph.node_ids) == NAMES
    assert graph.name == "toy"
    assert_same(GRAPHSAGE.read(tmp_path / "toy-G.json"), toy())


@pytest.mark.parametrize("links", ["index", "id"])
def test_whole_numbers_beyond_the_positions_are_ids(tmp_path: Path, links: str) -> None:
    ids = [10, 11, 12, 13, 14, 15, 16, 99]
    graph = GRAPHSAGE.read(write(tmp_path, toy(), ids, links))
    assert_same(graph, toy())
    assert graph.node_ids == ids


def test_links_with_two_meanings_are_asked_for(tmp_path: Path) -> None:
    write(tmp_path, toy(), WRONG_WAY_ROUND, "index")
    with pytest.raises(FormatError, match="pass links='index'"):
        GRAPHSAGE.read(tmp_path)
    assert_same(GRAPHSAGE.read(tmp_path, links="index"), toy())
    write(tmp_path, toy(), WRONG_WAY_ROUND, "id")
    assert_same(GRAPHSAGE.read(tmp_path, links="id"), toy())


def test_ids_that_are_the_positions_need_no_asking(tmp_path: Path) -> None:
    write(tmp_path, toy(), list(range(8)), "id")
    content = get(tmp_path, "G")
    content["nodes"].sort(key=lambda node: node["id"])
    put(tmp_path, "G", content)
    graph = GRAPHSAGE.read(tmp_path)
    assert_same(graph, toy())
    assert graph.node_ids is None


def test_what_networkx_itself_writes(tmp_path: Path) -> None:
    write(tmp_path, toy())
    graph = nx.Graph()
    for entry in get(tmp_path, "G")["nodes"]:
        graph.add_node(entry.pop("id"), **entry)
    graph.add_edges_from((NAMES[a], NAMES[b]) for a, b in zip(SOURCE, TARGET, strict=True))
    for key in ("links", "edges"):  # the name has changed with version 3.6
        put(tmp_path, "G", nx.node_link_data(graph, edges=key))
        assert_same(GRAPHSAGE.read(tmp_path), toy())


def test_several_labels_a_node(tmp_path: Path) -> None:
    assert_same(GRAPHSAGE.read(write(tmp_path, multilabel())), multilabel())


def test_weights_and_direction_are_kept(tmp_path: Path) -> None:
    content = get(write(tmp_path, toy()), "G") | {"directed": True}
    for weight, link in enumerate(content["links"]):
        link["weight"] = weight + 1
    put(tmp_path, "G", content)
    weights = np.arange(1.0, 9.0)
    assert_same(GRAPHSAGE.read(tmp_path), toy(weights=weights, directed=True))
    assert_same(GRAPHSAGE.read(tmp_path, directed=False), toy(weights=weights))


def test_without_a_feature_file(tmp_path: Path) -> None:
    (write(tmp_path, toy()) / "toy-feats.npy").unlink()
    assert_same(GRAPHSAGE.read(tmp_path), toy(features=np.eye(8)))
    content = get(tmp_path, "G")
    for entry, node in zip(content["nodes"], ORDER, strict=True):
        entry["feature"] = np.asarray(toy().features)[node].tolist()
    put(tmp_path, "G", content)
    assert_same(GRAPHSAGE.read(tmp_path), toy())
    content["nodes"][0]["feature"] = [1.0]
    put(tmp_path, "G", content)
    with pytest.raises(FormatError, match=r"toy-feats.npy is missing, and the nodes' own"):
        GRAPHSAGE.read(tmp_path)


@pytest.mark.parametrize("number", [10**400, 1e300])
def test_features_of_nodes_beyond_float32(tmp_path: Path, number: float) -> None:
    (write(tmp_path, toy()) / "toy-feats.npy").unlink()
    content = get(tmp_path, "G")
    for entry in content["nodes"]:
        entry["feature"] = [number]
    put(tmp_path, "G", content)
    with pytest.raises(FormatError, match="not one list of numbers|must be finite"):
        GRAPHSAGE.read(tmp_path)


@pytest.mark.parametrize("own", ["--5", "²", "٣", "9" * 5000])
def test_ids_that_look_like_numbers_are_text(tmp_path: Path, own: str) -> None:
    """networkx gives these nodes no id of its own; those that it lists are integers."""
    content = get(write(tmp_path, toy(), [0, 1, 2, 3, 4, 5, 6, own], links="id"), "G")
    content["nodes"] = [node for node in content["nodes"] if node["id"] != own]
    put(tmp_path, "G", content)
    graph = GRAPHSAGE.read(tmp_path, links="id")
    assert graph.node_ids is not None
    assert list(graph.node_ids) == [0, 1, 2, 3, 4, 5, 6, own]


def test_a_node_with_one_of_two_marks_is_in_no_part(tmp_path: Path) -> None:
    content = get(write(tmp_path, toy()), "G")
    content["nodes"][ORDER.index(7)]["val"] = True
    put(tmp_path, "G", content)
    assert_same(GRAPHSAGE.read(tmp_path), toy())


def test_nodes_of_the_id_map_alone_are_isolated(tmp_path: Path) -> None:
    content = get(write(tmp_path, toy(), links="id"), "G")
    content["nodes"] = [node for node in content["nodes"] if node["id"] != NAMES[7]]
    put(tmp_path, "G", content)
    assert_same(GRAPHSAGE.read(tmp_path), toy())


@pytest.mark.parametrize("part", ["G", "id_map", "class_map"])
def test_a_missing_file_is_named(tmp_path: Path, part: str) -> None:
    (write(tmp_path, toy()) / f"toy-{part}.json").unlink()
    with pytest.raises(MissingFileError, match=f"lacks toy-{part}.json"):
        GRAPHSAGE.read(tmp_path)


@pytest.mark.parametrize(
    ("part", "keys", "value", "message"),
    [
        ("G", (), [], "must hold an object, got list"),
        ("G", ("nodes",), 3, "must have a list 'nodes'"),
        ("G", ("nodes", 0, "id"), 10**4000, r"in the id map, but 1000.*\.\.\..* is not"),
        ("G", ("nodes", 0, "id"), [[[1]]], "in the id map, but"),
        ("G", ("links", 0, "source"), 10**30, "has a link to a number beyond 64 bits"),
        ("G", ("links", 0, "weight"), 10**400, "the weight of a link must be a number"),
        ("G", ("links", 0), 3, "entries of 'links' must be objects"),
        ("G", ("nodes", 0), {"val": True}, "an id that is in the id map, but None is not"),
        ("G", ("nodes", 0, "id"), "stranger", "but 'stranger' is not"),
        ("G", ("nodes", 0, "id"), NAMES[0], "lists a node twice"),
        ("G", ("links", 0), {"source": 1}, "must have a source and a target"),
        ("G", ("links", 0, "target"), 8, "and some are not"),
        ("G", ("links", 0, "target"), [1], "must have a source and a target"),
        ("G", ("links", 0, "weight"), "heavy", "weight of a link must be a number"),
        ("id_map", (NAMES[0],), 1, "must give 8 nodes the rows 0 to 7"),
        ("id_map", (NAMES[0],), "0", "must give 8 nodes the rows 0 to 7"),
        ("class_map", ("stranger",), 1, "labels 'stranger', which is not one of the 8 nodes"),
        ("class_map", (NAMES[0],), [1, 0], "as many labels as the others"),
        ("class_map", (NAMES[0],), None, "class number or a list"),
        ("class_map", (NAMES[0],), "sports", "class number or a list"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, part: str, keys: tuple[Any, ...], value: Any, message: str
) -> None:
    content = get(write(tmp_path, toy()), part)
    if keys:
        holder = content
        for key in keys[:-1]:
            holder = holder[key]
        holder[keys[-1]] = value
    else:
        content = value
    put(tmp_path, part, content)
    with pytest.raises(FormatError, match=message) as error:
        GRAPHSAGE.read(tmp_path)
    assert f"toy-{part}.json" in str(error.value)


def test_a_training_node_without_a_label_is_named(tmp_path: Path) -> None:
    classes = get(write(tmp_path, toy()), "class_map")
    del classes[NAMES[2]]
    put(tmp_path, "class_map", classes)
    with pytest.raises(FormatError, match=r"toy-G.json: node 't3_2' is in the train part"):
        GRAPHSAGE.read(tmp_path)
    put(tmp_path, "class_map", {})
    with pytest.raises(FormatError, match="no label"):
        GRAPHSAGE.read(tmp_path)


def test_text_that_is_no_json(tmp_path: Path) -> None:
    (write(tmp_path, toy()) / "toy-G.json").write_text('{"nodes": [')
    with pytest.raises(FormatError, match=r"toy-G.json cannot be read as JSON"):
        GRAPHSAGE.read(tmp_path)


def test_several_data_sets_are_asked_by_prefix(tmp_path: Path) -> None:
    write(tmp_path, toy(split=split_of(test=[3])))
    (tmp_path / "ppi-G.json").write_text("{}")
    with pytest.raises(InputError, match="pass prefix= one of ppi, toy"):
        GRAPHSAGE.read(tmp_path)
    with pytest.raises(InputError, match="holds ppi, toy, not prefix='reddit'"):
        GRAPHSAGE.read(tmp_path, prefix="reddit")
    assert GRAPHSAGE.read(tmp_path, prefix="toy").n_nodes == 8
    with pytest.raises(InputError, match="links must be one of index, id, got 'name'"):
        GRAPHSAGE.read(tmp_path, prefix="toy", links="name")
