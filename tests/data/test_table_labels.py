"""Labels and splits of a node table."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastgcn.data.layout import fingerprint
from fastgcn.errors import InputError
from tests.tables import NODES, read


@pytest.mark.parametrize(
    ("column", "labels", "names"),
    [
        (["b", "a", None, ""], [1, 0, -1, -1], ("a", "b")),
        ([10, 9, None, 9], [1, 0, -1, 0], ("9", "10")),
        ([1.0, 0.0, float("nan"), None], [1, 0, -1, -1], ("0", "1")),
        ([True, False, None, True], [1, 0, -1, 1], ("False", "True")),
        (["10", "9", "x", "9"], [0, 1, 2, 1], ("10", "9", "x")),
        (["1.0", "0.0", None, "0.0"], [1, 0, -1, 0], ("0", "1")),
        (["01", "02", "01", None], [0, 1, 0, -1], ("01", "02")),
        (["NA", "null", None, None], [0, 1, -1, -1], ("NA", "null")),
        (pa.array(["b", "a", None, "b"]).dictionary_encode(), [1, 0, -1, 1], ("a", "b")),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_classes(
    tmp_path: Path, kind: str, column: Any, labels: list[int], names: tuple[str, ...]
) -> None:
    if kind == "csv" and not isinstance(column, list):
        column = column.dictionary_decode()
    if kind == "csv" and isinstance(column[0], bool):
        names = ("false", "true")  # as pyarrow writes them
    if kind == "csv" and isinstance(column[0], float):
        column = [None if value is None or np.isnan(value) else value for value in column]
    graph = read(tmp_path, {**NODES, "split": [None] * 4, "label": pa.array(column)}, kind=kind)
    assert graph.labels is not None
    assert graph.labels.dtype == np.int64
    assert graph.labels.tolist() == labels
    assert graph.class_names == names


def test_no_label_at_all(tmp_path: Path) -> None:
    nodes = {**NODES, "label": pa.array([None, "", None, None], pa.string())}
    assert read(tmp_path, nodes).labels is None
    del nodes["label"]
    assert read(tmp_path, nodes).labels is None


def test_given_classes(tmp_path: Path) -> None:
    graph = read(tmp_path, NODES, classes=["z", "y", "x"])
    assert graph.labels is not None
    assert graph.labels.tolist() == [2, 1, 2, -1]
    assert graph.class_names == ("z", "y", "x")
    with pytest.raises(InputError, match="one of the classes 'x', 'Y', but node 'b' has 'y'"):
        read(tmp_path, NODES, classes=["x", "Y"])
    with pytest.raises(InputError, match="classes must be distinct"):
        read(tmp_path, NODES, classes=["x", "x"])


@pytest.mark.parametrize(
    ("lists", "names"),
    [
        ([[10, 9], [9], [], None], ("9", "10")),
        ([["q", "p"], ["p"], [], None], ("p", "q")),
    ],
)
def test_lists_of_classes(tmp_path: Path, lists: list[Any], names: tuple[str, ...]) -> None:
    graph = read(tmp_path, {**NODES, "label": pa.array(lists)})
    assert graph.labels is not None
    assert graph.labels.dtype == np.bool_
    assert graph.labels.tolist() == [[True, True], [True, False], [False] * 2, [False] * 2]
    assert graph.class_names == names
    with pytest.raises(InputError, match=rf"but node 'b' has '{names[0]}'"):
        read(tmp_path, {**NODES, "label": pa.array([[], lists[1], [], []])}, classes=["other"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_a_class(tmp_path: Path, kind: str) -> None:
    nodes = {**NODES, "red": [1, 0, 1, 0], "new": [False, False, True, True]}
    del nodes["label"]
    graph = read(tmp_path, nodes, kind=kind, label="red, new")
    assert graph.labels is not None
    assert graph.labels.astype(int).tolist() == [[1, 0], [0, 0], [1, 1], [0, 1]]
    assert graph.class_names == ("red", "new")
    assert graph.n_features == 2
    with pytest.raises(InputError, match="'red' of .* must be 0 or 1 in every row, but node 'c'"):
        read(tmp_path, nodes | {"red": [1, 0, 2, 0]}, kind=kind, label="red,new")
    with pytest.raises(InputError, match="'red' of .* but node 'a'"):
        read(tmp_path, nodes | {"red": [None, 0, 2, 0]}, kind=kind, label="red,new")
    with pytest.raises(InputError, match="classes must not be given"):
        read(tmp_path, nodes, kind=kind, label="red,new", classes=["red", "new"])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, 2, 3, 4], pa.date32()), "classes as text or integers, or numbers, got date"),
        (["1.5", "inf", "2", "3"], "must be finite, or NaN for none, but node 1 has inf"),
    ],
)
def test_bad_labels(tmp_path: Path, column: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, {**NODES, "label": column}, kind="csv" if "inf" in column else "parquet")


def test_words_for_the_split(tmp_path: Path) -> None:
    words = ["Train", " val", "VALID", "validation", "test", "none", "", None]
    nodes = {"id": range(8), "f": range(8), "split": words}
    for kind in ("csv", "parquet"):
        graph = read(tmp_path, nodes, {"source": [0], "target": [1]}, kind=kind)
        assert [ids.tolist() for _, ids in graph.split.items()] == [[0], [1, 2, 3], [4]]


def test_bad_splits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'split' of .* train, val or test.* 'c' has 'dev'"):
        read(tmp_path, {**NODES, "split": ["train", "val", "dev", "dev"]})
    with pytest.raises(InputError, match="node 'd' is in the train part of the split but has no"):
        read(tmp_path, {**NODES, "split": ["train"] * 4})
    with pytest.raises(InputError, match="either split='fold' or random_split, not both"):
        read(tmp_path, {**NODES, "fold": NODES["split"]}, split="fold", random_split=1)
    with pytest.raises(InputError, match="random_split needs labels"):
        read(tmp_path, {"id": [1, 2], "f": [1, 2]}, {"source": [1], "target": [2]}, random_split=0)


def test_random_split(tmp_path: Path) -> None:
    nodes = {"id": range(50), "f": range(50), "label": [i % 2 for i in range(50)]}
    edges = {"source": [0], "target": [1]}
    nodes_with_split = nodes | {"split": ["train"] * 50}
    graph = read(tmp_path, nodes_with_split, edges, random_split=3)
    assert [len(ids) for _, ids in graph.split.items()] == [30, 10, 10]
    assert graph.n_features == 1
    assert fingerprint(graph) == fingerprint(read(tmp_path, nodes, edges, random_split=3))
    assert fingerprint(graph) != fingerprint(read(tmp_path, nodes, edges, random_split=4))
