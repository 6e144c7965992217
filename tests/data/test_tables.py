"""A node table and an edge table as a graph: the whole, and the edges."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgcn.data.layout import arrays_of, fingerprint
from fastgcn.data.store import open_store
from fastgcn.data.tables import import_tables
from fastgcn.errors import InputError
from fastgcn.graph.csr import Cleaning
from fastgcn.graph.graph import Graph
from tests.customers import customers
from tests.tables import EDGES, NODES, dense, read, read_csv


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
    assert graph.feature_names == ("size", "share")


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


def test_a_column_of_lists_names_no_feature(tmp_path: Path) -> None:
    lists = {"id": ["a", "b"], "x": [[1.0, 2.0], [3.0, 4.0]]}
    assert read(tmp_path, lists, {"source": ["a"], "target": ["b"]}).feature_names is None


def test_an_import_loads_neither_torch_nor_scikit_learn_nor_pandas(tmp_path: Path) -> None:
    """Torch alone would take 190 MB, of which the bound on the memory of an import has no room, and
    pandas, which Arrow loads by itself, a fifth of a second."""
    customers(300, 900).write(tmp_path)
    script = (
        "import sys; from fastgcn.data.tables import import_tables; "
        "import_tables(*sys.argv[1:], id='customer', label='status', source='payer', "
        "target='payee', weight='times', text='note'); print(*sys.modules)"
    )
    files = [str(tmp_path / name) for name in ("customers.csv", "payments.csv", "store")]
    loaded = subprocess.check_output([sys.executable, "-c", script, *files], text=True).split()
    assert "numba" in loaded
    assert not {"torch", "sklearn", "pandas", "pooch", "requests"} & set(loaded)
