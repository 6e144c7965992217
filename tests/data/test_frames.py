"""Graphs from data frames, Arrow tables and DuckDB; all go through the one import."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastgcn import Graph, fingerprint
from fastgcn.errors import InputError, MissingFileError
from tests.tables import read

duckdb = pytest.importorskip("duckdb")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

COLUMNS: dict[str, Any] = {
    "id": [f"c{i}" for i in range(40)],
    "label": ["good", "bad", None, "good"] * 10,
    "size": [float(i) if i % 9 else None for i in range(40)],
    "city": ["Rome", "Oslo", "Bonn", None] * 10,
    "member": [True, False] * 20,
    "since": [datetime.date(2020, 1, 1 + i % 28) for i in range(40)],
}
EDGES: dict[str, Any] = {"source": COLUMNS["id"][:-1], "target": COLUMNS["id"][1:]}


def test_all_kinds_of_tables_give_the_same_graph(tmp_path: Path) -> None:
    expected = read(tmp_path, COLUMNS, EDGES)
    nodes, edges = pa.table(COLUMNS), pa.table(EDGES)
    frames = {
        "arrow": (nodes, edges),
        "pandas": (nodes.to_pandas(date_as_object=False), edges.to_pandas()),
        "polars": (polars.from_arrow(nodes), polars.from_arrow(edges)),
        "lazy": (polars.from_arrow(nodes).lazy(), polars.from_arrow(edges)),
        "duckdb": (duckdb.sql("SELECT * FROM nodes"), duckdb.sql("SELECT * FROM edges")),
    }
    for kind, tables in frames.items():
        graph = Graph.from_tables(*tables)
        assert graph.feature_names == expected.feature_names, kind
        assert fingerprint(graph) == fingerprint(expected), kind
        assert graph.imported is not None
        assert graph.name == "graph"
    assert fingerprint(Graph.from_pandas(*frames["pandas"])) == fingerprint(expected)
    assert fingerprint(Graph.from_polars(*frames["polars"])) == fingerprint(expected)


def test_a_query_of_a_duckdb_file(tmp_path: Path) -> None:
    nodes, edges = pa.table(COLUMNS), pa.table(EDGES)
    path = tmp_path / "bank.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("n", nodes)
        connection.register("e", edges)
        connection.execute("CREATE TABLE nodes AS SELECT * FROM n")
        connection.execute("CREATE TABLE edges AS SELECT * FROM e")
    graph = Graph.from_tables(f"{path}:nodes", f"{path}:SELECT * FROM edges")
    assert fingerprint(graph) == fingerprint(read(tmp_path, COLUMNS, EDGES))
    for wrong, message in (
        ("missing", "cannot be read: .*missing"),
        ("SELECT FROM", "cannot be read"),
        ("SELECT * FROM '/etc/passwd'", "cannot be read"),
        ("DROP TABLE nodes", "cannot be read|must be a query"),
    ):
        with pytest.raises(InputError, match=message):
            Graph.from_tables(f"{path}:{wrong}", f"{path}:edges")


def test_names_of_rows_of_pandas() -> None:
    frame = pandas.DataFrame(COLUMNS)
    edges = pandas.DataFrame(EDGES)
    expected = fingerprint(Graph.from_pandas(frame, edges))
    assert fingerprint(Graph.from_pandas(frame.set_index("id"), edges)) == expected
    mixed = frame.assign(size=["1", 2] * 20)
    with pytest.raises(InputError, match="the node table cannot be read as a table"):
        Graph.from_pandas(mixed, edges)


def test_categories_keep_their_codes_apart() -> None:
    codes = pa.array([1, 2] * 20).dictionary_encode()
    table = pa.table({"id": COLUMNS["id"], "code": codes})
    names = Graph.from_tables(table, pa.table(EDGES)).feature_names
    assert names == ("code=1", "code=2", "degree")


@pytest.mark.parametrize("wrong", [5, None, [1, 2], {"id": [1]}, np.eye(3), pa.Table])
def test_things_that_are_no_tables(wrong: Any) -> None:
    with pytest.raises(InputError, match="the node table must be a file, a data frame"):
        Graph.from_tables(wrong, pa.table(EDGES))


@pytest.mark.parametrize(
    ("labels", "task"),
    [([0, 1, -1, 1] * 10, "classification"), (np.linspace(0, 1, 40), "regression"), (None, None)],
)
def test_features_and_labels_of_npy_files(tmp_path: Path, labels: Any, task: str | None) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    edges = pa.table({"source": range(39), "target": range(1, 40)})
    named = {}
    if labels is not None:
        labels = np.array(labels)
        if labels.dtype.kind == "f":
            labels[3] = np.nan
        np.save(tmp_path / "labels.npy", labels)
        named = {"label": str(tmp_path / "labels.npy")}
    graph = Graph.from_tables(tmp_path / "rows.npy", edges, **named)
    np.testing.assert_array_equal(graph.features, rows)
    if graph.labels is None:
        assert labels is None
    else:
        assert graph.task == task
        np.testing.assert_allclose(graph.labels, labels, rtol=1e-6)


@pytest.mark.parametrize("labels", [np.zeros(39), np.zeros((40, 2)), np.array(["a"] * 40)])
def test_labels_of_another_shape_are_refused(tmp_path: Path, labels: Any) -> None:
    np.save(tmp_path / "rows.npy", np.ones((40, 3)))
    np.save(tmp_path / "labels.npy", labels)
    edges = pa.table({"source": range(39), "target": range(1, 40)})
    with pytest.raises(InputError, match="must hold 40 integers or numbers, a label for each node"):
        Graph.from_tables(tmp_path / "rows.npy", edges, label=str(tmp_path / "labels.npy"))
    with pytest.raises(MissingFileError, match="there is no file nope"):
        Graph.from_tables(tmp_path / "rows.npy", edges, label="nope.npy")
