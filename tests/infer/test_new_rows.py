"""Tables of new nodes: encoded as the run's training nodes were, whatever they lack."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastgcn
from fastgcn.data.tables import import_tables
from fastgcn.errors import InputError
from tests.cli_runner import run_cli
from tests.customers import Customers, customers

OPTIONS: dict[str, Any] = {
    "id": "customer",
    "label": "status",
    "source": "payer",
    "target": "payee",
    "weight": "times",
}
FAST: dict[str, Any] = {"epochs": 2, "hidden": 8, "samples": 50, "seed": 0}


@pytest.fixture(scope="module")
def bank() -> Customers:
    return customers(400, 2000)


@pytest.fixture(scope="module")
def run(bank: Customers, tmp_path_factory: pytest.TempPathFactory) -> fastgcn.Run:
    folder = tmp_path_factory.mktemp("bank")
    nodes, edges = bank.write(folder)
    import_tables(nodes, edges, folder / "store", **OPTIONS)
    graph = fastgcn.load(folder / "store")
    return fastgcn.fit(graph, run_dir=folder / "run", **FAST)


def _store(run: fastgcn.Run) -> fastgcn.Graph:
    assert run.source is not None
    return fastgcn.load(run.source["data"])


def _rows(bank: Customers, **columns: Any) -> pa.Table:
    """The first three customers under new names, with other values in some columns."""
    table = bank.nodes.slice(0, 3).drop_columns(["status"])
    for name, values in {"customer": ["X0", "X1", "X2"], **columns}.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


EDGES = pa.table({"payer": ["X0", "X1"], "payee": ["C0000003", "X2"], "times": [2, 3]})


def test_new_rows_are_encoded_like_old_ones(bank: Customers, run: fastgcn.Run) -> None:
    from fastgcn.data.tables.new_rows import read_new_nodes

    graph = _store(run)
    new = read_new_nodes(_rows(bank), EDGES, graph)
    assert isinstance(graph.features, np.ndarray)
    np.testing.assert_array_equal(new["features"][:, :-1], graph.features[:3, :-1])
    assert new["node_ids"] == ["X0", "X1", "X2"]
    assert new["weights"].tolist() == [2, 3]
    found = fastgcn.predict_new(run, graph, nodes=_rows(bank), edges=EDGES)
    arrays = fastgcn.predict_new(run, graph, **new)
    np.testing.assert_array_equal(found, arrays)


def test_the_run_knows_the_encoders_without_its_store(bank: Customers, run: fastgcn.Run) -> None:
    assert run.path is not None
    again = fastgcn.Run.load(run.path)
    assert again.imported == run.imported == _store(run).imported
    # A graph in memory that is the same, but has not kept what its import decided.
    from dataclasses import replace

    graph = replace(_store(run), imported=None)
    found = fastgcn.predict_new(again, graph, nodes=_rows(bank), edges=EDGES)
    np.testing.assert_array_equal(
        found, fastgcn.predict_new(run, _store(run), nodes=_rows(bank), edges=EDGES)
    )


def test_what_new_rows_lack(
    bank: Customers, run: fastgcn.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run.path is not None
    rows = _rows(bank, city=["Nowhere", None, "City 01"]).drop_columns(["income"])
    pa.csv.write_csv(rows, tmp_path / "new.csv")
    pa.csv.write_csv(EDGES, tmp_path / "edges.csv")
    tables = ["--new-nodes", tmp_path / "new.csv", "--new-edges", tmp_path / "edges.csv"]
    out = run_cli(capfd, "predict", run.path, *tables, "--out", tmp_path / "p.csv")
    assert out.code == 0, out.err
    assert "lacks 'income': missing in every row" in out.err
    assert "column 'city' has values that no training node has, in 1 of 3 rows" in out.err
    assert "column 'city' has no value in 1 of 3 rows" in out.err
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 4
    nothing = pa.table({"customer": ["X0"], "colour": ["red"]})
    with pytest.raises(InputError, match="has none of the columns that the features are made of"):
        fastgcn.predict_new(run, _store(run), nodes=nothing, edges=EDGES)


def test_new_edges_without_weights(
    bank: Customers, run: fastgcn.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bare, rows = EDGES.drop_columns(["times"]), _rows(bank)
    with pytest.raises(InputError, match="have weights, but the new edges have none.*default-we"):
        fastgcn.predict_new(run, _store(run), nodes=rows, edges=bare)
    given = EDGES.set_column(2, "times", pa.array([5, 5]))
    np.testing.assert_array_equal(
        fastgcn.predict_new(run, _store(run), nodes=rows, edges=bare, default_weight=5),
        fastgcn.predict_new(run, _store(run), nodes=rows, edges=given),
    )
    with pytest.raises(InputError, match="default_weight must be a number of at least 0"):
        fastgcn.predict_new(run, _store(run), nodes=rows, edges=bare, default_weight=-1)
    pa.csv.write_csv(rows, tmp_path / "new.csv")
    pa.csv.write_csv(bare, tmp_path / "edges.csv")
    tables = ["--new-nodes", tmp_path / "new.csv", "--new-edges", tmp_path / "edges.csv"]
    assert run.path is not None
    out = run_cli(capfd, "predict", run.path, *tables, "--out", tmp_path / "p.csv")
    assert out.code == 1
    assert "--default-weight" in out.err
    weighted = [*tables, "--default-weight", 5, "--out", tmp_path / "p.csv"]
    assert run_cli(capfd, "predict", run.path, *weighted).code == 0


def test_a_graph_that_was_encoded_otherwise_is_refused(
    bank: Customers, run: fastgcn.Run, tmp_path: Path
) -> None:
    nodes, edges = bank.write(tmp_path)
    import_tables(nodes, edges, tmp_path / "other", random_split=1, **OPTIONS)
    with pytest.raises(InputError, match="were encoded otherwise than those .*--like RUN"):
        fastgcn.predict(run, fastgcn.load(tmp_path / "other"))
    assert run.path is not None
    import_tables(nodes, edges, tmp_path / "like", random_split=1, like=run.path, **OPTIONS)
    np.testing.assert_array_equal(
        fastgcn.predict(run, fastgcn.load(tmp_path / "like")), fastgcn.predict(run, _store(run))
    )


def test_wrong_arguments(bank: Customers, run: fastgcn.Run) -> None:
    graph = _store(run)
    for arguments, message in (
        ({"nodes": _rows(bank)}, "go together"),
        ({"nodes": _rows(bank), "edges": EDGES, "source": [0]}, "either as tables"),
        ({"source": [0], "target": [1]}, "new nodes need features"),
    ):
        with pytest.raises(InputError, match=message):
            fastgcn.predict_new(run, graph, **arguments)


def test_new_nodes_of_a_graph_whose_features_are_its_structure() -> None:
    rng = np.random.default_rng(0)
    nodes = pa.table({"id": np.arange(60), "label": np.arange(60) % 2})
    ends = rng.integers(0, 30, (2, 300)) * 2 + np.arange(300) % 2
    edges = pa.table({"source": ends[0], "target": ends[1]})
    graph = fastgcn.Graph.from_tables(nodes, edges, structure=16)
    trained = fastgcn.fit(graph, epochs=30, hidden=8, samples=30, seed=0)
    new = pa.table({"id": [100, 101]})
    own = np.arange(0, 20, 2)
    joined = pa.table({"source": [100] * 10 + [101] * 10, "target": [*own, *(own + 1)]})
    found = fastgcn.predict_new(trained, graph, nodes=new, edges=joined)
    assert found.argmax(axis=1).tolist() == [0, 1]


@pytest.mark.parametrize("directed", [False, True])
def test_new_nodes_have_degrees_like_old_ones(directed: bool) -> None:
    """As in an import of all rows: edges to new nodes count, and repeated ones count once."""
    from fastgcn.data.tables.new_rows import read_new_nodes

    def table(ids: str) -> pa.Table:
        return pa.table({"id": list(ids), "kind": ["x", "y", None] * (len(ids) // 3)})

    old = pa.table({"source": list("abc"), "target": list("bca"), "weight": [1.0, 2.0, 3.0]})
    ends = [("d", "a"), ("d", "a"), ("a", "d"), ("d", "e"), ("e", "e"), ("b", "e"), ("f", "c")]
    source, target = zip(*ends, strict=True)
    new = pa.table({"source": source, "target": target, "weight": [1.0] * 6 + [0.0]})
    few = fastgcn.Graph.from_tables(table("abc"), old, directed=directed)
    all_ = fastgcn.Graph.from_tables(
        table("abcdef"), pa.concat_tables([old, new]), directed=directed
    )
    found = read_new_nodes(table("def"), new, few)["features"]
    assert isinstance(all_.features, np.ndarray)
    assert few.feature_names == all_.feature_names == ("kind=x", "kind=y", "kind:missing", "degree")
    np.testing.assert_allclose(found, all_.features[3:], rtol=1e-6)


def test_a_new_node_that_may_be_an_old_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that pandas has read without dtype=str has 27 where the graph has 0027."""
    said: list[str] = []
    monkeypatch.setattr("fastgcn.infer.new_nodes.note", said.append)
    nodes = pa.table({"id": [f"{i:04d}" for i in range(40)], "x": np.arange(40) % 7})
    ends = np.random.default_rng(0).integers(0, 40, (2, 100))
    pairs = [pa.array([f"{i:04d}" for i in end]) for end in ends]
    nodes = nodes.append_column("label", pa.array(np.arange(40) % 2))
    graph = fastgcn.Graph.from_tables(nodes, pa.table(pairs, ["source", "target"]))
    run = fastgcn.fit(graph, epochs=1, hidden=4, samples=10)
    for own, alike in (([27, 5000], True), (["new", "x"], False)):
        said.clear()
        rows = pa.table({"id": own, "x": [1, 2]})
        none = pa.table({"source": pa.array([], pa.string()), "target": pa.array([], pa.string())})
        fastgcn.predict_new(run, graph, nodes=rows, edges=none)
        features = np.zeros((2, graph.n_features))
        empty: list[Any] = []
        fastgcn.predict_new(run, graph, features=features, source=empty, target=empty, node_ids=own)
        sentence = "'27' counts as a new node, but may be '0027', which is known"
        assert [sentence in each for each in said if "counts as" in each] == 2 * alike * [True]
