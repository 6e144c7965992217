"""Graphs of other libraries, given to `load` and `fit`; files of PyG's `Data`."""

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.sparse import eye_array

import fastgcn
from fastgcn import Graph, fingerprint
from fastgcn.errors import FormatError, InputError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of PyG's, while it is imported
    from torch_geometric.data import Data


def graph() -> Graph:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 30, (2, 90))
    features = rng.normal(size=(30, 4))
    plain = Graph.from_edges(*ends, features=features, labels=np.arange(30) % 3)
    return fastgcn.random_split(plain)


def test_load_and_fit_take_graphs_of_other_libraries() -> None:
    known = graph()
    for other in (known, known.to_pyg(), known.to_networkx()):
        assert fastgcn.load(other).n_edges == known.n_edges
    assert len(fastgcn.load(known.to_pyg(), split="random", seed=1, train=0.3).split.train) == 9
    settings: dict[str, Any] = {"epochs": 1, "hidden": 4, "samples": 10, "seed": 0}
    runs = [fastgcn.fit(each, **settings) for each in (known, known.to_pyg())]
    assert runs[0].metrics["val_loss"] == runs[1].metrics["val_loss"]
    assert fastgcn.fit("digits", epochs=1, hidden=4, samples=10).metrics["dataset"] == "digits"


def test_a_tuple_of_ogb() -> None:
    known = graph()
    ends = known.to_scipy().tocoo()
    record = {
        "edge_index": np.stack([ends.row, ends.col]),
        "edge_feat": None,
        "node_feat": known.features,
        "num_nodes": 30,
    }
    assert known.labels is not None
    loaded = fastgcn.load((record, known.labels[:, None]))
    assert loaded.n_edges == known.n_edges
    np.testing.assert_array_equal(loaded.labels, known.labels)
    labels = known.labels[:, None].astype(np.float64)
    labels[3] = np.nan
    loaded = fastgcn.load((record, labels), name="mine")
    assert loaded.name == "mine"
    assert loaded.labels is not None
    assert loaded.labels[3] == -1
    with pytest.raises(InputError, match=r"must have shape \(2, edges\)"):
        fastgcn.load((record | {"edge_index": np.zeros(3)}, labels))


def test_files_of_pyg(tmp_path: Path) -> None:
    data = graph().to_pyg()
    expected = fingerprint(Graph.from_pyg(data))
    plain = Data(**{name: data[name] for name in ("x", "edge_index", "y")})
    for name in ("train_mask", "val_mask", "test_mask"):
        plain[name] = data[name]
    for saved in (plain, plain.to_dict(), (plain.to_dict(), None)):
        torch.save(saved, tmp_path / "mine.pt")
        loaded = fastgcn.load(tmp_path / "mine.pt")
        assert loaded.name == "mine"
        assert fingerprint(loaded) == expected


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_files_of_pyg_are_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "x.pt"
    for content in (Evil(), {"x": Evil()}, [1, 2], torch.zeros(3), (graph().to_pyg(), {"x": 1})):
        torch.save(content, file)
        with pytest.raises(FormatError, match="x.pt"):
            fastgcn.load(file)
    for raw in (b"", b"PK\x03\x04 no", pickle.dumps(Evil()), os.urandom(100)):
        file.write_bytes(raw)
        with pytest.raises(FormatError, match="x.pt"):
            fastgcn.load(file)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("thing", "way"),
    [
        (5, "got int"),
        (None, "got NoneType"),
        ([1, 2], "got list"),
        (pa.table({"id": [1]}), r"Graph.from_tables\(nodes, edges\)"),
        (np.eye(3), "Graph.from_edges"),
        (torch.eye(3), "Graph.from_edges"),
        (eye_array(3), "Graph.from_scipy"),
    ],
    ids=str,
)
def test_other_things_are_refused_by_naming_the_way(thing: Any, way: str) -> None:
    for take in (fastgcn.load, fastgcn.fit):
        with pytest.raises(InputError, match=f"a graph is needed.*{way}"):
            take(thing)


def test_a_wrong_option_of_a_conversion() -> None:
    with pytest.raises(InputError, match="colour"):
        fastgcn.load(networkx.path_graph(3), colour="red")
    with pytest.raises(InputError, match="a Graph has no option 'name'"):
        fastgcn.load(graph(), name="x")


def test_features_in_an_npy_file_beside_an_edge_list(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 3))
    np.save(tmp_path / "x.npy", matrix)
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,4\n")
    loaded = Graph.from_tables(tmp_path / "x.npy", tmp_path / "edges.csv")
    np.testing.assert_array_equal(loaded.features, matrix.astype(np.float32))
    assert loaded.n_edges == 2
    for wrong in (np.zeros(3), np.array([["a"]]), np.zeros((0, 3))):
        np.save(tmp_path / "x.npy", wrong)
        with pytest.raises(InputError, match="x.npy must hold a matrix of numbers"):
            Graph.from_tables(tmp_path / "x.npy", tmp_path / "edges.csv")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    for module in ("data.objects", "graph.convert_networkx"):
        monkeypatch.setattr(f"fastgcn.{module}.note", found.append)
    return found


def test_edge_features_of_ogb_are_said_to_be_unused(said: list[str]) -> None:
    record = {"edge_index": np.array([[0, 1], [1, 2]]), "node_feat": np.eye(3), "num_nodes": 3}
    fastgcn.load((record | {"edge_feat": None}, np.zeros((3, 1), int)))
    assert not said
    fastgcn.load((record | {"edge_feat": np.ones((2, 4))}, np.zeros((3, 1), int)))
    assert len(said) == 1
    assert said[0].startswith("the graph's edge_feat is not used")


def test_edge_attributes_of_networkx(said: list[str]) -> None:
    friends = networkx.Graph()
    friends.add_edge("a", "b", weight=3.0)
    assert fastgcn.load(friends, features=None).weights is not None
    assert not said
    friends.add_edge("b", "c", since=1990)
    fastgcn.load(friends, features=None)
    assert said == [
        "1 of 2 edges have no 'weight' and count as 1, as in networkx",
        "of the edges' attributes, 'since' are not used; weight=... names the weights",
    ]
    said.clear()
    assert fastgcn.load(friends, features=None, weight=None).weights is None
    assert said == [
        "of the edges' attributes, 'weight', 'since' are not used; weight=... names the weights"
    ]
