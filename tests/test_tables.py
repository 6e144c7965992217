"""Graphs given as tables: what every kind of column becomes, and what bad tables are told."""

import gzip
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgcn.csr import Cleaning
from fastgcn.data.layout import arrays_of, fingerprint
from fastgcn.data.store import is_store, open_store
from fastgcn.data.tables import import_tables, memory_bytes, read_tables
from fastgcn.errors import FastGCNError, FormatError, InputError, MissingFileError
from fastgcn.graph import Graph

Columns = Mapping[str, Any]

NODES = {
    "id": ["a", "b", "c", "d"],
    "label": ["x", "y", "x", None],
    "split": ["train", "val", "test", None],
    "size": [1, 2, 3, 4],
    "share": [0.5, 0.25, 0.0, 1.0],
}
EDGES = {"source": ["a", "b", "c"], "target": ["b", "c", "d"]}


def write(path: Path, columns: Columns) -> Path:
    table = pa.table(dict(columns))
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
        return path
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    sink = pa.output_stream(path, compression="gzip" if path.suffix == ".gz" else None)
    with sink:
        pa.csv.write_csv(table, sink, pa.csv.WriteOptions(delimiter=delimiter))
    return path


def read(
    folder: Path, nodes: Columns, edges: Columns = EDGES, *, kind: str = "parquet", **options: Any
) -> Graph:
    return read_tables(
        write(folder / f"nodes.{kind}", nodes), write(folder / f"edges.{kind}", edges), **options
    )


def read_csv(folder: Path, nodes: str, edges: str = "source,target\n", **options: Any) -> Graph:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return read_tables(folder / "nodes.csv", folder / "edges.csv", **options)


def dense(graph: Graph) -> list[list[float]]:
    return graph.to_scipy().toarray().tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "parquet"])
def test_every_kind_of_file_gives_the_same_graph(tmp_path: Path, kind: str) -> None:
    graph = read(tmp_path, NODES, kind=kind, name="g")
    expected = Graph.from_edges(
        [0, 1, 2],
        [1, 2, 3],
        features=np.array([[1, 0.5], [2, 0.25], [3, 0], [4, 1]]),
        labels=[0, 1, 0, -1],
        node_ids=["a", "b", "c", "d"],
        class_names=["x", "y"],
    )
    assert repr(graph) == "Graph(g: 4 nodes, 3 undirected edges, 2 features, 2 classes)"
    assert {part: ids.tolist() for part, ids in graph.split.items()} == {
        "train": [0],
        "val": [1],
        "test": [2],
    }
    for name, array in arrays_of(expected).items():
        if name not in ("train", "val", "test"):
            np.testing.assert_array_equal(arrays_of(graph)[name], array)
            assert arrays_of(graph)[name].dtype == array.dtype
    assert graph.class_names == ("x", "y")


def test_reading_is_importing_and_opening(tmp_path: Path) -> None:
    in_memory = read(tmp_path, NODES, kind="csv")
    import_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "store", name="g")
    stored = open_store(tmp_path / "store", verify=True)
    assert stored.name == "g"
    assert fingerprint(in_memory) == fingerprint(stored)
    assert list(arrays_of(in_memory)) == list(arrays_of(stored))
    assert not any(isinstance(array, np.memmap) for array in arrays_of(in_memory).values())
    # The fingerprint that the store has is that of the arrays themselves.
    assert fingerprint(in_memory._replaced()) == fingerprint(stored)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_import_is_from_edges(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 30))
    ends = data.draw(st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=60))
    directed, weighted = data.draw(st.booleans()), data.draw(st.booleans())
    source, target = np.array(ends, np.int64).reshape(-1, 2).T
    weights = np.arange(len(ends), dtype=np.float32) % 5 if weighted else None
    ids = np.array(data.draw(st.permutations(range(n)))) * data.draw(st.sampled_from([1, 10**6]))
    features = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    edges = {"source": ids[source], "target": ids[target]}
    if weights is not None:
        edges["weight"] = weights
    nodes = {"id": ids, "f": features[:, 0], "g": features[:, 1]}
    with TemporaryDirectory() as folder:
        kind = data.draw(st.sampled_from(["csv", "parquet"]))
        graph = read(Path(folder), nodes, edges, kind=kind, directed=directed)
    expected = Graph.from_edges(
        source, target, features=features, weights=weights, directed=directed, node_ids=ids
    )
    if np.array_equal(ids, np.arange(n)):
        assert graph.node_ids is None
        expected = expected._replaced(node_ids=None)
    assert fingerprint(graph) == fingerprint(expected)
    assert graph.cleaned == expected.cleaned
    assert graph.directed == directed


# Ids.


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


# Labels.


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
        ([0.5, 1.0, 2.0, 3.0], "'label' of .* must hold classes, got fractions"),
        (pa.array([1, 2, 3, 4], pa.date32()), "must hold classes as text or integers, got date32"),
    ],
)
def test_bad_labels(tmp_path: Path, column: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, {**NODES, "label": column})


# Split.


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


# Features.


def test_columns_of_features(tmp_path: Path) -> None:
    nodes = {
        "z": [1, 2, 3, 4],
        **NODES,
        "flag": [True, False, True, False],
        "text": ["p", "q", "r", "s"],
    }
    with pytest.raises(InputError, match=r"'text' of .* to be a feature, got string; .*features="):
        read(tmp_path, nodes)
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
    with pytest.raises(InputError, match="either numeric columns or one column of lists"):
        read(tmp_path, nodes | {"y": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, None, 3, 4], "'size' of .* must hold finite numbers, but node 'b' has none"),
        ([1, 2, float("nan"), 4], "must hold finite numbers, but node 'c' has none"),
        ([1, 2, 3, -float("inf")], "but node 'd' has one beyond float32"),
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
    with pytest.raises(InputError, match="has 'NA' in column 'f', where a number must be"):
        read_csv(tmp_path, "id,f\n0,1\n1,NA\n")


# Edges.


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_weights_and_cleaning(tmp_path: Path, kind: str) -> None:
    edges = {
        "source": ["a", "a", "b", "c", "d"],
        "target": ["b", "b", "a", "c", "a"],
        "weight": [1.0, 2.0, 2.5, 1.0, 0.0],
    }
    graph = read(tmp_path, NODES, edges, kind=kind)
    assert dense(graph)[:2] == [[0, 3, 0, 0], [3, 0, 0, 0]]
    assert graph.cleaned == Cleaning(self_loops=1, duplicates=1, zero_weights=1)
    renamed = {"from": edges["source"], "to": edges["target"], "w": edges["weight"]}
    same = read(tmp_path, NODES, renamed, kind=kind, source="from", target="to", weight="w")
    assert fingerprint(same) == fingerprint(graph)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("weight", "got"), [(None, "none"), (-1.0, "-1"), (float("inf"), "inf"), (float("nan"), "nan")]
)
def test_bad_weights(tmp_path: Path, kind: str, weight: float | None, got: str) -> None:
    edges = {**EDGES, "weight": pa.array([1.0, weight, 1.0])}
    with pytest.raises(InputError, match=rf"'weight' .* edge 'b' → 'c', row 2, has {got}"):
        read(tmp_path, NODES, edges, kind=kind)


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must hold numbers to be edge weights, got string"):
        read(tmp_path, NODES, {**EDGES, "weight": ["1", "2", "3"]})
    with pytest.raises(InputError, match="has 'heavy' in column 'weight', where a number must be"):
        read_csv(tmp_path, "id,f\n0,1\n1,1\n", "source,target,weight\n0,1,heavy\n")


def test_no_edges(tmp_path: Path) -> None:
    graph = read_csv(tmp_path, "id,f\n0,1\n1,1\n")
    assert graph.n_edges == 0
    assert graph.indptr.tolist() == [0, 0, 0]


# Columns and files.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "ID"}, "nodes.parquet has no column 'ID' for node ids; its columns are 'id', 'la"),
        ({"label": "klass"}, "no column 'klass' for labels"),
        ({"label": "size,lable"}, "no column 'lable' for labels; .*; did you mean 'label'"),
        ({"split": "spilt"}, "no column 'spilt' for the split; .*; did you mean 'split'"),
        ({"source": "from"}, "edges.parquet has no column 'from' for where edges start"),
        ({"target": "targets"}, "no column 'targets' .*; did you mean 'target'"),
        ({"weight": "w"}, "no column 'w' for edge weights"),
        ({"memory": "much"}, "memory must be at least 1MB, such as 500MB or 2GB, got 'much'"),
        ({"memory": 10}, "memory must be at least 1MB"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, NODES, **options)


def test_memory_sizes() -> None:
    sizes = ["1GB", "1.5 gb", "500MB", "20000k", "3e9", 2_000_000, "2GiB"]
    expected: Sequence[int | None] = [10**9, 1_500_000_000, 5 * 10**8, 2 * 10**7, None, 2 * 10**6]
    for size, number in zip(sizes, [*expected, 2 * 10**9], strict=True):
        if number is None:
            with pytest.raises(InputError, match="memory must be"):
                memory_bytes(size)
        else:
            assert memory_bytes(size) == number


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("none.csv", None, MissingFileError, "there is no file .*none.csv"),
        ("e.csv", b"", FormatError, "e.csv is empty"),
        ("e.csv", b"source,target", FormatError, "e.csv is empty"),
        ("e.parquet", b"", FormatError, "e.parquet is empty"),
        ("e.parquet", b"source,target\n1,2\n", FormatError, "could not be read: Parquet magic"),
        ("e.txt", b"source,target\n1,2\n", FormatError, "must be a CSV or Parquet file and named"),
        ("e.parquet.gz", b"x", FormatError, "must be a CSV or Parquet file and named"),
        ("e", b"source,target\n1,2\n", FormatError, "must be a CSV or Parquet file and named"),
        ("e.csv", b"source,target\na,b\nc\n", FormatError, "Expected 2 columns, got 1"),
        ("e.csv", b"source,target\na,\xff\n", FormatError, "must be UTF-8 text"),
        ("e.csv", b"source,\xfftarget\na,b\n", FormatError, "must be UTF-8 text"),
        ("e.csv", b"source,target,source\na,b,c\n", FormatError, "has 'source' twice"),
        ("e.csv", b"source,target\na," + b"b" * 3_000_000, FormatError, "a row of more than"),
        ("e.csv.gz", b"source,target\na,b\n", FormatError, "could not be read: zlib"),
        (
            "e.csv.gz",
            gzip.compress(b"source,target\n" + b"a,b\n" * 9999)[:60],
            FormatError,
            "could not be read: Truncated",
        ),
        ("e.csv", b"a;b\n1;2\n", InputError, "no column 'source' .* its columns are 'a;b'"),
    ],
)
def test_bad_files(
    tmp_path: Path, name: str, content: bytes | None, error: type[FastGCNError], message: str
) -> None:
    nodes = write(tmp_path / "nodes.csv", NODES)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = set(tmp_path.iterdir())
    with pytest.raises(error, match=message):
        import_tables(nodes, tmp_path / name, tmp_path / "store")
    assert set(tmp_path.iterdir()) == before


def test_a_folder_and_a_table_without_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a file, but is a folder"):
        read_tables(tmp_path, tmp_path)
    with pytest.raises(InputError, match="has no rows: a graph must have at least one node"):
        read_csv(tmp_path, "id,f\n")


def test_text_over_several_lines(tmp_path: Path) -> None:
    graph = read_csv(tmp_path, 'id,label,f\n"a\nb","x, y",1\nc,z,2\n', 'source,target\nc,"a\nb"\n')
    assert graph.node_ids is not None
    assert list(graph.node_ids) == ["a\nb", "c"]
    assert graph.class_names == ("x, y", "z")
    assert graph.n_edges == 1


def test_an_import_that_fails_leaves_nothing(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", NODES)
    edges = write(tmp_path / "edges.csv", EDGES | {"weight": [1, 1, -1]})
    out = tmp_path / "stores" / "mine"
    with pytest.raises(InputError, match="none negative"):
        import_tables(nodes, edges, out)
    assert list(out.parent.iterdir()) == []
    write(edges, EDGES)
    import_tables(nodes, edges, out)
    assert open_store(out).name == "mine"
    with pytest.raises(InputError, match="exists already"):
        import_tables(nodes, edges, out)
    import_tables(nodes, edges, out, force=True, directed=True)
    assert open_store(out, verify=True).directed
    assert list(out.parent.iterdir()) == [out]


def test_a_full_disk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 1000
    nodes = write(tmp_path / "n.parquet", {"id": np.arange(n), "f": np.ones(n)})
    ends = rng.integers(0, n, (2, 300_000))
    edges = write(tmp_path / "e.parquet", {"source": ends[0], "target": ends[1]})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(InputError, match="could not write .*; free some space"):
            import_tables(nodes, edges, tmp_path / "store", memory="1MB")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert set(tmp_path.iterdir()) == {nodes, edges}
    import_tables(nodes, edges, tmp_path / "store", memory="1MB")
    assert is_store(tmp_path / "store")
