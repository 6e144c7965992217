"""A small table of customers: ours and the trees, from end to end."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.pages import measure
from benchmarks.results import Results
from benchmarks.tables import Bank, _tables, experiment, inputs_of_trees, neighbour_means

from benchmarks import tables

SMALL = Bank(600, 3000, 5)


def test_our_default_is_compared_with_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "RATES", (0.1,))
    monkeypatch.setattr(tables, "LEAVES", (7,))
    compared, results = experiment(SMALL, seeds=2), Results(tmp_path / "r.jsonl")
    assert measure([compared], results) == 5
    table, claims = compared.show(results)
    assert len(claims.rows) == 1  # type: ignore[union-attr]
    names = [row[0] for row in table.rows]  # type: ignore[union-attr]
    assert names[:2] == [f"`import` and `train`, seed {seed}" for seed in (0, 1)]
    assert len(names) == 5
    assert all(0 <= float(cell) <= 1 for row in table.rows for cell in row[1:5])  # type: ignore[union-attr]


def test_trees_get_every_column_that_says_something() -> None:
    table, graph = _tables(SMALL)
    own = {name: inputs_of_trees(table, graph, name) for name in ("columns", "text", "neighbours")}
    assert list(own["text"])[: own["columns"].shape[1]] == list(own["columns"])
    left_out = {"", "customer", "status", "note", "email", "currency"}
    assert set(own["columns"]) == set(table.column_names) - left_out
    assert own["neighbours"].shape[1] == 2 * own["text"].shape[1] + 1
    assert own["columns"]["income"].isna().any(), "trees take gaps as they are"
    assert str(own["columns"]["city"].dtype) == "category"


def test_means_over_neighbours() -> None:
    _, graph = _tables(SMALL)
    rows = np.random.default_rng(0).normal(size=(graph.n_nodes, 3))
    found = neighbour_means(graph, rows)
    matrix = graph.to_scipy().toarray()
    node = int(np.argmax(matrix.sum(1)))
    np.testing.assert_allclose(found[node, :3], matrix[node] @ rows / matrix[node].sum())
    assert found[node, 3] == np.count_nonzero(matrix[node])
