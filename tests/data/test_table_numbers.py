"""Labels of a node table that are numbers to predict."""

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fastgcn import Graph, open_store, save
from fastgcn.data.layout import fingerprint
from fastgcn.data.store import SCHEMAS
from fastgcn.errors import FormatError, InputError
from fastgcn.schema import read_any
from tests.regression import numbers
from tests.tables import NODES, read

NONE = float("nan")


def notes(graph: Graph) -> str:
    assert graph.imported is not None
    return " ".join(graph.imported["notes"])


def labelled(folder: Path, label: Any, **options: Any) -> Graph:
    return read(folder, {**NODES, "split": [None] * 4, "label": label}, **options)


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ([1.5, -2.0, NONE, None], [1.5, -2.0, NONE, NONE]),
        (["1.5", "-2e3", "", None], [1.5, -2000.0, NONE, NONE]),
        (["0.5", "NaN", "NA", " 7 "], [0.5, NONE, NONE, 7.0]),
        (
            pa.array([decimal.Decimal("1.25"), None, None, decimal.Decimal(3)]),
            [1.25, NONE, NONE, 3],
        ),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_numbers_with_fractions(tmp_path: Path, kind: str, column: Any, found: Any) -> None:
    if kind == "parquet" and isinstance(column, list) and isinstance(column[0], str):
        pytest.skip("text of a typed table is for classes")
    graph = labelled(tmp_path, column, kind=kind)
    assert graph.regression
    assert graph.labels is not None
    assert graph.labels.dtype == np.float64
    np.testing.assert_array_equal(graph.labels, found)
    distinct = len({value for value in found if value == value})
    said = f"the target 'label' has {distinct} distinct numbers: trained as regression"
    assert said in notes(graph)
    assert "--task classification takes them for classes" in notes(graph)
    assert "% of the nodes with a target are training" in notes(graph)
    assert graph.class_names is None


def test_text_of_a_typed_table_is_for_classes(tmp_path: Path) -> None:
    assert labelled(tmp_path, ["1.5", "2.5", "1.5", None]).task == "classification"
    asked = labelled(tmp_path, ["1.5", "2.5", "1.5", None], task="regression")
    assert asked.regression
    assert "trained as regression" not in notes(asked)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("values", "task"),
    [
        (np.arange(400) * 13, "regression"),  # incomes
        (np.arange(400) % 90, "classification"),
        (np.arange(6000) % 150, "classification"),  # codes of 150 classes
        (np.arange(6000) % 150 + 1, "classification"),
        (np.arange(6000) % 150 + 7, "regression"),
        (np.arange(400), "regression"),  # one node each
    ],
)
def test_whole_numbers(tmp_path: Path, values: Any, task: str, kind: str) -> None:
    table = {"id": np.arange(len(values)), "x": np.ones(len(values)), "label": values}
    edges = {"source": [0], "target": [1]}
    assert read(tmp_path, table, edges, kind=kind).task == task
    forced = {"regression": "classification", "classification": "regression"}[task]
    assert read(tmp_path, table, edges, kind=kind, task=forced).task == forced


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_fractions_as_classes(tmp_path: Path, kind: str) -> None:
    graph = labelled(tmp_path, [0.5, 1.5, 0.5, None], kind=kind, task="classification")
    assert graph.class_names == ("0.5", "1.5")
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 0, -1]


@pytest.mark.parametrize(
    ("label", "options", "message"),
    [
        (["1", "x", "2", None], {"task": "regression"}, "must hold numbers .* node 'b' has 'x'"),
        ([1.0, 2.0, 3.5, 4.0], {"task": "rank"}, "task must be one of auto, classification, reg"),
        ([1.0, 2.0, 3.5, 4.0], {"task": "regression", "classes": ["1"]}, "classes are not for a"),
        ([["a"], ["b"], [], None], {"task": "regression"}, "but 'label' holds lists"),
        ([1.0, 2.0, 3.5, float("inf")], {}, "must be finite, or NaN for none, but node 3 has inf"),
    ],
)
def test_refusals(tmp_path: Path, label: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        labelled(tmp_path, pa.array(label), **options)
    with pytest.raises(InputError, match="a regression has one column of numbers, got label"):
        read(tmp_path, NODES, label="size,share", task="regression")


def test_pandas_and_a_column_of_the_users_name() -> None:
    nodes = pd.DataFrame({"id": [*"abcd"], "income": [1.5, None, 2.5, 3.5], "age": [1, 2, 3, 4]})
    edges = pd.DataFrame({"source": ["a"], "target": ["b"]})
    graph = Graph.from_pandas(nodes, edges, label="income")
    assert graph.regression
    assert "the target 'income' has 3 distinct numbers" in notes(graph)
    assert graph.feature_names == ("age",)


def test_nodes_that_only_edges_name_have_no_target(tmp_path: Path) -> None:
    edges = {"source": ["a", "z"], "target": ["b", "a"]}
    graph = read(tmp_path, {**NODES, "label": [0.5, 1.5, 2.5, 3.5]}, edges, unknown="add")
    assert graph.labels is not None
    np.testing.assert_array_equal(graph.labels, [0.5, 1.5, 2.5, 3.5, NONE])


def test_stores_keep_numbers_and_earlier_versions_refuse_them(tmp_path: Path) -> None:
    graph = numbers(n=40)
    save(graph, tmp_path / "store")
    again = open_store(tmp_path / "store", verify=True)
    assert again.task == "regression"
    np.testing.assert_array_equal(again.labels, graph.labels)
    assert fingerprint(again) == fingerprint(graph)
    assert read_any(tmp_path / "store" / "graph.json", "")["schema"] == SCHEMAS[1] == 2
    labels = np.load(tmp_path / "store" / "labels.npy")
    labels[3] = np.inf
    np.save(tmp_path / "store" / "labels.npy", labels)
    with pytest.raises(FormatError, match="holds a number that is not finite"):
        open_store(tmp_path / "store")
    labels[3], labels[again.split.train[0]] = 1.0, np.nan
    np.save(tmp_path / "store" / "labels.npy", labels)
    with pytest.raises(FormatError, match="names a node without a label"):
        open_store(tmp_path / "store")


def test_other_libraries_and_back() -> None:
    pytest.importorskip("torch_geometric")
    graph = numbers(n=40, labels=np.arange(40.0), task="regression")  # whole numbers, as few
    for back in (Graph.from_pyg(graph.to_pyg()), Graph.from_networkx(graph.to_networkx())):
        assert back.task == "regression"
        np.testing.assert_array_equal(back.labels, graph.labels)
    data = numbers(n=40).to_pyg()
    del data.task
    data.y = data.y[:, None].float()
    found = Graph.from_pyg(data)
    assert found.regression
    wanted = np.asarray(numbers(n=40).labels)
    np.testing.assert_allclose(np.asarray(found.labels), wanted, rtol=1e-6)
