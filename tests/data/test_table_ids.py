"""Ids of a node table, and edges that name them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastgcn.errors import InputError
from tests.tables import NODES, dense, read, read_csv


@pytest.mark.parametrize(
    "ids",
    [
        [0, 1, 2, 3],
        [3, 2, 1, 0],
        [-5, 10**15, 7, -(2**63)],
        ["a", "Zürich", "a b", "007"],
        ["1", "2", "x", "4"],
        ["01", "02", "03", "04"],
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ids_of_any_kind(tmp_path: Path, ids: list[Any], kind: str) -> None:
    edges = {"source": ids[:3], "target": ids[1:]}
    graph = read(tmp_path, {"id": ids, "f": [1, 2, 3, 4]}, edges, kind=kind)
    assert dense(graph) == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    if ids == [0, 1, 2, 3]:
        assert graph.node_ids is None
    else:
        assert graph.node_ids is not None
        assert [i if isinstance(i, str) else int(i) for i in graph.node_ids] == ids


def test_ids_that_turn_out_to_be_text_late_in_a_file(tmp_path: Path) -> None:
    ids = [*(str(i) for i in range(200_000)), "last"]
    graph = read(
        tmp_path,
        {"id": ids, "f": np.ones(len(ids))},
        {"source": ["last", "7"], "target": ["0", "199999"]},
        kind="csv",
    )
    assert graph.node_ids is not None
    assert graph.node_ids[-1] == "last"
    assert graph.indices[graph.indptr[-2] :].tolist() == [0]
    assert graph.indices[graph.indptr[7] : graph.indptr[8]].tolist() == [199_999]


@pytest.mark.parametrize(
    ("ids", "ends"),
    [
        (pa.array([10, 20], pa.uint8()), ["10", "20"]),
        ([10, 20], pa.array([10.0, 20.0])),
        (["10", "20"], pa.array([10, 20], pa.int32())),
        (pa.array(["p", "q"]).dictionary_encode(), pa.array(["p", "q"], pa.large_string())),
        (pa.array(["p", "q"], pa.string_view()), pa.array(["p", "q"]).dictionary_encode()),
    ],
)
def test_ends_of_another_type_than_the_ids(tmp_path: Path, ids: Any, ends: Any) -> None:
    ends = pa.array(ends)
    graph = read(
        tmp_path, {"id": ids, "f": [1, 2]}, {"source": ends[:1], "target": ends[1:]}, directed=True
    )
    assert dense(graph) == [[0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("ids", "ends", "message"),
    [
        ([1, 2], ["1", "x"], "'target' of .* must hold integers, as the node table's.*'x'"),
        ([1, 2], [1.0, 1.5], "must hold integers"),
        (["1", "2"], [1.0, 2.0], "must hold text, as the node table's ids are, got double"),
        ([1, 2], [True, False], "must hold integers, .* got bool"),
        ([1, 1], [1, 1], r"'id' of .* name each node once, but has 1 more than once \(1 rows"),
        ([1, 1, 10**9], [1, 1], "but has 1 more than once"),
        (["p", "q", "p", "p"], ["p", "p"], r"'p' more than once \(2 rows"),
        ([1, None], [1, 1], "every node an id, but row 2 has none"),
        ([1.5, 2.5], [1, 1], "must hold integers or text, got double"),
        (pa.array([2**63], pa.uint64()), [1, 1], r"must hold ids below 2\*\*63"),
        ([1, 2], [1, None], "must have a 'target' in every row; row 1 has none"),
    ],
)
def test_bad_ids(tmp_path: Path, ids: Any, ends: list[Any], message: str) -> None:
    column = pa.array(ends)
    edges = {"source": column[:1], "target": column[1:]}
    with pytest.raises(InputError, match=message):
        read(tmp_path, {"id": ids, "f": np.ones(len(ids))}, edges)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_unknown_ids_are_counted_and_named(tmp_path: Path, kind: str) -> None:
    edges = {"source": [f"z{i}" for i in range(7)] + ["a"], "target": ["a"] * 8}
    with pytest.raises(InputError) as error:
        read(tmp_path, NODES, edges, kind=kind)
    assert "has 7 rows with an id that the node table does not have" in str(error.value)
    assert "'z0', 'z1', 'z2', 'z3', 'z4', …; it must list every node" in str(error.value)


def test_text_where_ids_are_integers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 'q' in column 'target', where an integer must be"):
        read_csv(tmp_path, "id,f\n0,1\n1,1\n", "source,target\n0,1\n0,q\n")
