"""What an import decides about splits, labels, unknown ids, weights and types; each is noted."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import fastgcn
from fastgcn.data.store import open_store
from fastgcn.data.tables import import_tables
from fastgcn.data.tables.new_rows import read_new_nodes
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from tests.cli_runner import run_cli
from tests.customers import customers
from tests.tables import EDGES, NODES, dense, read, read_csv, write

N = 100
TABLE: dict[str, Any] = {
    "id": [f"n{i}" for i in range(N)],
    "label": ["a", "b", "b", "b", None] * 20,
    "x": np.arange(N),
}
ONE = {"source": ["n0"], "target": ["n1"]}


def notes(graph: Graph) -> str:
    assert graph.imported is not None
    return "\n".join(graph.imported["notes"])


def test_a_table_without_a_split_gets_a_stratified_one(tmp_path: Path) -> None:
    for table in (TABLE, {**TABLE, "split": pa.array([None] * N, pa.string())}):
        graph = read(tmp_path, table, ONE)
        assert [len(part) for _, part in graph.split.items()] == [48, 16, 16]
        assert graph.labels is not None
        assert np.bincount(graph.labels[graph.split.train]).tolist() == [12, 36]
        assert "the table has no split: 60, 20 and 20 % of each class" in notes(graph)
        assert "20 of 100 nodes have no label" in notes(graph)
    assert not len(read(tmp_path, TABLE, ONE, random_split=False).split.train)
    seeded = read(tmp_path, TABLE, ONE, random_split=3)
    assert "drawn with seed 3" in notes(seeded)
    assert seeded.split.train.tolist() != graph.split.train.tolist()


def test_random_split_in_python(tmp_path: Path) -> None:
    graph = read(tmp_path, TABLE, ONE, random_split=False)
    assert len(fastgcn.random_split(graph, train=0.5, seed=1).split.train) == 40
    with pytest.raises(InputError, match="has no labels, and a random split needs them"):
        fastgcn.random_split(read(tmp_path, {"id": ["a"], "x": [1]}, {"source": [], "target": []}))


def test_labels_that_may_be_wrong(tmp_path: Path) -> None:
    one = read(tmp_path, {**TABLE, "label": ["a"] * N}, ONE)
    assert (
        "all labelled nodes have the class 'a': there is nothing to learn, and training is refused"
        in notes(one)
    )
    ages = {"id": np.arange(90), "x": np.arange(90), "label": np.arange(90) + 7}
    many = read(tmp_path, ages, {"source": [0], "target": [1]})
    assert "'label' has 90 different whole numbers, and each is taken for a class" in notes(many)
    none = read(tmp_path, {"id": TABLE["id"], "x": TABLE["x"]}, ONE)
    assert "no labels" in notes(none)


UNKNOWN = {"source": ["a", "z", "c", "y"], "target": ["b", "a", "y", "z"]}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_unknown_ids(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match="3 rows with an id .* 'z', 'y'; .*--drop-unknown"):
        read(tmp_path, NODES, UNKNOWN, kind=kind)
    dropped = read(tmp_path, NODES, UNKNOWN, kind=kind, unknown="drop")
    assert dropped.n_edges == 1
    assert "3 edges are left out" in notes(dropped)
    added = read(tmp_path, NODES, UNKNOWN, kind=kind, unknown="add")
    assert [added.node_ids[i] for i in range(6)] == [*"abcd", "z", "y"]  # type: ignore[index]
    assert added.n_edges == 4
    assert added.labels is not None
    assert added.labels.tolist() == [0, 1, 0, -1, -1, -1]
    assert isinstance(added.features, np.ndarray)
    # One training node: its values are the means.
    np.testing.assert_array_equal(added.features[4], added.features[5])
    assert np.isfinite(added.features).all()
    assert "2 nodes are added, because only the edges name them, such as 'z'" in notes(added)
    with pytest.raises(InputError, match="unknown must be one of refuse, drop, add"):
        read(tmp_path, NODES, UNKNOWN, unknown="ignore")


def test_unknown_integers_are_added(tmp_path: Path) -> None:
    graph = read_csv(tmp_path, "id,x\n0,1\n1,2\n", "source,target\n0,7\n1,5\n", unknown="add")
    assert np.asarray(graph.node_ids).tolist() == [0, 1, 7, 5]
    labels = {"id": [1, 2], "x": [1, 2], "label": [["p"], ["p", "q"]]}
    several = read(tmp_path, labels, {"source": [1], "target": [3]}, unknown="add")
    assert several.labels is not None
    assert several.labels.tolist() == [[True, False], [True, True], [False, False]]


def test_ids_with_zeros_in_front(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the node table has '0027' where the edge table has '27'"):
        read_csv(tmp_path, "id,x\n0027,1\n0028,2\n", "source,target\n27,28\n")
    with pytest.raises(InputError, match="has 'ann' where the edge table has ' Ann'"):
        read_csv(tmp_path, "id,x\nann,1\nbob,2\n", "source,target\n Ann,bob\n")
    graph = read_csv(tmp_path, "id,x\n27,1\n28,2\n", "source,target\n0027,28\n")
    assert graph.n_edges == 1
    assert "ids with zeros in front, such as '0027'" in notes(graph)


def test_columns_of_edges_that_are_not_used(tmp_path: Path) -> None:
    edges = {**EDGES, "amount": [1.0, 2.0, 3.0], "kind": ["card", "cash", "card"]}
    graph = read(tmp_path, NODES, edges)
    assert "the columns 'amount', 'kind' of" in notes(graph)
    assert "not used" not in notes(read(tmp_path, NODES, EDGES))


def test_gaps_among_weights(tmp_path: Path) -> None:
    edges = {**EDGES, "weight": [2.0, None, 3.0]}
    with pytest.raises(InputError, match="row 2, has none; --default-weight 1 fills it in"):
        read(tmp_path, NODES, edges)
    graph = read(tmp_path, NODES, edges, default_weight=0.5)
    assert dense(graph)[1][2] == 0.5
    assert "1 edges without a weight have the weight 0.5" in notes(graph)


KINDS = {
    "source": ["a", "b", "c", "a"],
    "target": ["b", "c", "d", "d"],
    "kind": ["card", "cash", "card", None],
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_types_of_edges(tmp_path: Path, kind: str) -> None:
    alike = read(tmp_path, NODES, KINDS, kind=kind, type_column="kind")
    assert alike.n_edges == 4
    assert alike.weights is None
    assert "edges of all types count alike: 'card' (2), 'cash' (1), '' (1)" in notes(alike)
    cards = read(tmp_path, NODES, KINDS, kind=kind, type_column="kind", types=["card"])
    assert cards.n_edges == 2
    assert cards.weights is None
    weights = {"card": 2, "cash": 0.5}
    both = read(tmp_path, NODES, KINDS, kind=kind, type_column="kind", types=weights)
    assert dense(both) == [[0, 2, 0, 0], [2, 0, 0.5, 0], [0, 0.5, 0, 2], [0, 0, 2, 0]]
    assert "'card' times 2, 'cash' times 0.5; left out: ''" in notes(both)
    with pytest.raises(InputError, match="types names 'cards', .* did you mean 'card'"):
        read(tmp_path, NODES, KINDS, type_column="kind", types=["cards"])
    with pytest.raises(InputError, match="name their column"):
        read(tmp_path, NODES, KINDS, types=["card"])
    with pytest.raises(InputError, match="must be finite and not negative"):
        read(tmp_path, NODES, KINDS, type_column="kind", types={"card": -1})


def test_several_edge_tables(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", NODES)
    calls = write(tmp_path / "calls.csv", {"source": ["a"], "target": ["b"]})
    mails = write(tmp_path / "mails.csv", {"source": ["b"], "target": ["c"], "weight": [3.0]})
    with pytest.raises(InputError, match="calls.csv has no weights, but other edge tables have"):
        import_tables(nodes, [calls, mails], tmp_path / "store")
    import_tables(
        nodes, [calls, mails], tmp_path / "store", default_weight=1, types={"calls": 4, "mails": 2}
    )
    assert dense(open_store(tmp_path / "store"))[1] == [4, 0, 6, 0]
    import_tables(nodes, {"talk": calls, "mail": mails}, tmp_path / "talk", types=["talk"])
    talk = open_store(tmp_path / "talk")
    assert talk.n_edges == 1
    assert "edges of the types 'mail' are left out" in notes(talk)
    with pytest.raises(InputError, match="types names 'call', but the tables are 'calls', 'mails'"):
        import_tables(nodes, [calls, mails], tmp_path / "x", types=["call"])


def test_new_edges_have_the_weights_of_their_types(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", NODES)
    calls = write(tmp_path / "calls.csv", {"source": ["a"], "target": ["b"]})
    mails = write(tmp_path / "mails.csv", {"source": ["b"], "target": ["c"]})
    import_tables(nodes, [calls, mails], tmp_path / "store", types={"calls": 4, "mails": 2})
    graph = open_store(tmp_path / "store")
    new = write(tmp_path / "new.csv", {"id": ["z"], "size": [1], "share": [1.0]})
    (tmp_path / "new").mkdir()
    more = write(tmp_path / "new" / "calls.csv", {"source": ["z"], "target": ["a"]})
    assert read_new_nodes(new, more, graph)["weights"].tolist() == [4]
    other = write(tmp_path / "visits.csv", {"source": ["z"], "target": ["a"]})
    with pytest.raises(InputError, match="have the types 'calls', 'mails', but the new ones 'vis"):
        read_new_nodes(new, other, graph)
    typed = read(tmp_path, NODES, KINDS, type_column="kind", types={"card": 2, "cash": 0.5})
    edges = pa.table({"source": ["z", "z"], "target": ["a", "b"], "kind": ["cash", "card"]})
    assert read_new_nodes(new, edges, typed)["weights"].tolist() == [0.5, 2]


def test_a_graph_without_features(tmp_path: Path) -> None:
    bare = {"id": NODES["id"], "label": NODES["label"]}
    with pytest.raises(InputError, match="has no features.*--structure 64"):
        read(tmp_path, bare)
    graph = read(tmp_path, bare, structure=8)
    assert graph.feature_names is not None
    assert graph.feature_names[:2] == ("degree", "near#0")
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.shape == (4, 9)
    np.testing.assert_allclose(graph.features[:, 0], np.log([2, 3, 3, 2]), rtol=1e-6)
    beside = read(tmp_path, NODES, structure=8)
    assert beside.n_features == 11
    with pytest.raises(InputError, match="structure must be a number of features from 1"):
        read(tmp_path, bare, structure=0)


WITH_KINDS = {**NODES, "split": ["train", "train", "val", "test"], "kind": ["p", "q", "p", None]}


def test_the_degree_is_a_feature_of_encoded_tables(tmp_path: Path) -> None:
    graph = read(tmp_path, WITH_KINDS)
    assert graph.feature_names is not None
    assert graph.feature_names[-1] == "degree"
    assert isinstance(graph.features, np.ndarray)
    np.testing.assert_allclose(graph.features[:, -1], np.log1p([1, 2, 2, 1]), rtol=1e-6)
    assert "the feature 'degree' is the logarithm" in notes(graph)
    for other, times in (
        (read(tmp_path, WITH_KINDS, degree=False), 0),
        (read(tmp_path, NODES), 0),  # numbers that are taken as they are
        (read(tmp_path, WITH_KINDS, structure=4), 1),  # it has the degree already
    ):
        assert list(other.feature_names or ()).count("degree") == times
        assert "the feature 'degree'" not in notes(other)
    asked = read(tmp_path, NODES, degree=True)
    assert asked.feature_names == ("size", "share", "degree")
    alone = read(tmp_path, {"id": NODES["id"], "label": NODES["label"]}, degree=True)
    assert alone.feature_names == ("degree",)


def test_a_table_imported_like_another_has_the_degree_too(tmp_path: Path) -> None:
    nodes = write(tmp_path / "n.csv", WITH_KINDS)
    edges = write(tmp_path / "e.csv", EDGES)
    for name, degree in (("with", None), ("without", False)):
        import_tables(nodes, edges, tmp_path / name, degree=degree)
        import_tables(nodes, edges, tmp_path / f"{name}-2", like=tmp_path / name)
        first, second = (fastgcn.load(tmp_path / each) for each in (name, f"{name}-2"))
        np.testing.assert_array_equal(first.features, second.features)
        assert second.feature_names == first.feature_names
        assert first.imported is not None
        assert second.imported is not None
        assert first.imported["structure"] == second.imported["structure"]


def test_structure_tells_communities_apart() -> None:
    rng = np.random.default_rng(0)
    n, side = 200, np.arange(200) % 2
    source = rng.integers(0, n, 2000)
    target = rng.integers(0, n // 2, 2000) * 2 + side[source]
    bare = Graph.from_edges(source, target, features=np.empty((n, 0)))
    graph = fastgcn.structural_features(bare, 32)
    assert isinstance(graph.features, np.ndarray)
    likeness = graph.features[:, 1:] @ graph.features[:, 1:].T
    assert likeness[0, 2::2].mean() > likeness[0, 1::2].mean() + 0.5


def test_the_command_says_and_keeps_its_choices(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes = write(tmp_path / "nodes.csv", TABLE)
    edges = write(tmp_path / "edges.csv", {**ONE, "when": ["today"]})
    tables = ["import", "--nodes", nodes, "--edges", edges, "--out"]
    told = run_cli(capfd, *tables, tmp_path / "s")
    assert told.code == 0
    assert "Note: the table has no split" in told.err
    assert "Note: the column 'when' of" in told.err
    assert "the table has no split" in notes(open_store(tmp_path / "s"))
    for flags, message in (
        (["--drop-unknown", "--add-unknown"], "exclude each other"),
        (["--types", "card=x"], "--types must be such as"),
        (["--scale", "log"], "scale must be one of"),
        (["--like", tmp_path / "none"], "is neither a store nor a run"),
        (["--drop", "y"], "drop names 'y'"),
        (["--nodes", tmp_path / "x.duckdb:t"], "there is no file"),
        (["--nodes", tmp_path / "x.duckdb"], "name a table or a query of it"),
    ):
        refused = run_cli(capfd, *tables, tmp_path / "t", *flags)
        assert refused.code == 1
        assert message in refused.err


def test_the_two_lines_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bank = customers(300, 1500)
    names = {"customer": "id", "status": "label"}
    nodes = bank.nodes.rename_columns([names.get(n, n) for n in bank.nodes.column_names])
    ends = bank.edges.select(["payer", "payee"]).rename_columns(["source", "target"])
    pa.csv.write_csv(nodes, "n.csv")
    pa.csv.write_csv(ends, "e.csv")
    imported = run_cli(capfd, "import", "--nodes", "n.csv", "--edges", "e.csv", "--out", "mine")
    assert imported.code == 0, imported.err
    trained = run_cli(capfd, "train", "mine", "--epochs", 1, "--hidden", 8, "--json")
    assert trained.code == 0, trained.err
    assert "test_micro_f1" in trained.out
