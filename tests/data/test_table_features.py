"""Features of a node table."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastgcn.errors import InputError
from tests.tables import NODES, read, read_csv


def test_columns_of_features(tmp_path: Path) -> None:
    nodes = {
        "z": [1, 2, 3, 4],
        **NODES,
        "flag": [True, False, True, False],
        "text": ["p", "q", "r", "s"],
    }
    for kind in ("csv", "parquet"):
        graph = read(tmp_path, nodes, kind=kind, features=["flag", "z"])
        assert isinstance(graph.features, np.ndarray)
        assert graph.features.dtype == np.float32
        assert graph.features.tolist() == [[1, 1], [0, 2], [1, 3], [0, 4]]


def test_a_fraction_late_in_a_csv_file(tmp_path: Path) -> None:
    n = 300_000
    rows = [*(f"{i},{i % 7}" for i in range(n)), f"{n},0.5"]
    graph = read_csv(tmp_path, "id,f\n" + "\n".join(rows) + "\n")
    assert isinstance(graph.features, np.ndarray)
    assert graph.features[-1, 0] == 0.5
    assert graph.features[n - 1, 0] == (n - 1) % 7


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.int64(), 2)], ids=str)
def test_a_column_of_lists(tmp_path: Path, kind: pa.DataType) -> None:
    lists = pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], kind)
    nodes = {key: NODES[key] for key in ("id", "label", "split")} | {"x": lists}
    assert isinstance(features := read(tmp_path, nodes).features, np.ndarray)
    assert features.tolist() == lists.to_pylist()
    beside = read(tmp_path, nodes | {"y": [1, 2, 3, 4]}).features
    assert isinstance(beside, np.ndarray)
    assert beside.tolist() == [[1, 2, 1], [3, 4, 2], [5, 6, 3], [7, 8, 4]]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            [1, 2, 3, -float("inf")],
            "'size' of .* must hold finite numbers, but node 'd' has one beyond float32",
        ),
        ([1, 2, 3, 1e300], "but node 'd' has one beyond float32"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_bad_features(tmp_path: Path, kind: str, column: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, {**NODES, "size": column}, kind=kind)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1, 2], [3], [4, 5], [6, 7]], "one length, 2 as in the first row, but node 'b' has 1 n"),
        ([[1, 2], None, [4, 5], [6, 7]], "but node 'b' has no list"),
        ([[1, 2], [3, None], [4, 5], [6, 7]], "finite numbers, but node 'b' has none"),
        ([[], [], [], []], "but node 'a' has 0 numbers"),
    ],
)
def test_bad_lists_of_features(tmp_path: Path, lists: list[Any], message: str) -> None:
    nodes = {"id": NODES["id"], "x": pa.array(lists, pa.list_(pa.float64()))}
    with pytest.raises(InputError, match=message):
        read(tmp_path, nodes)


def test_what_may_be_asked_as_features(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column 'sice' for features.*did you mean 'size'"):
        read(tmp_path, NODES, features=["sice"])
    with pytest.raises(InputError, match="'label' of .* cannot also be a feature"):
        read(tmp_path, NODES, features=["label"])
    with pytest.raises(InputError, match="must name each column once"):
        read(tmp_path, NODES, features=["size", "size"])
    with pytest.raises(InputError, match="at least one column"):
        read(tmp_path, NODES, features=[])
    with pytest.raises(InputError, match="has no features"):
        read(tmp_path, {"id": NODES["id"], "label": NODES["label"]})
