"""The store: what goes in comes out, memory-mapped; what is not whole does not open."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fastgcn import (
    GCN,
    Graph,
    fingerprint,
    normalize,
    open_store,
    predict,
    predict_new,
    save,
    subgraph,
)
from fastgcn.data.info import describe
from fastgcn.data.layout import TextIds, arrays_of, npy_sha256
from fastgcn.data.manifest import verify_arrays
from fastgcn.data.store import StoreWriter
from fastgcn.errors import FastGCNError, FormatError, InputError, MissingFileError, WriteError
from fastgcn.features.store import NodeFeatures, column_statistics
from fastgcn.graph.adjacency import NormalizedRows, gather
from fastgcn.graph.edges import edges_of
from tests.communities import communities
from tests.small_disk import small_disk
from tests.strategies import graphs, split_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of PyG's, while it is imported
    import torch_geometric.data  # noqa: F401


def example(**changes: Any) -> Graph:
    fields: dict[str, Any] = {
        "features": np.arange(8.0).reshape(4, 2),
        "labels": [0, 1, 0, -1],
        "split": split_of(train=[0, 2], val=[1]),
        "node_ids": ["a", "Zürich", "日本", "d"],
        "class_names": ["x", "y"],
        "name": "example",
    }
    return Graph.from_edges([0, 1, 2], [1, 2, 2], **(fields | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"node_ids": None, "class_names": None},
        {"node_ids": [10, 20, 30, 2**40]},
        {"features": csr_array(np.eye(4))},
        {"features": np.zeros((4, 0))},
        {"labels": None},
        {"labels": np.eye(4, 2)},
        {"weights": [1, 2, 3]},
        {"directed": True},
    ],
)
def test_round_trip(tmp_path: Path, changes: dict[str, Any]) -> None:
    graph = example(**changes)
    save(graph, tmp_path / "s")
    again = open_store(tmp_path / "s", verify=True)
    for name, array in arrays_of(graph).items():
        np.testing.assert_array_equal(arrays_of(again)[name], array)
        assert arrays_of(again)[name].dtype == array.dtype
    assert repr(again) == repr(graph)
    assert again.cleaned == graph.cleaned
    assert again.class_names == graph.class_names
    assert (again.node_ids is None) == (graph.node_ids is None)
    if again.node_ids is not None and graph.node_ids is not None:
        assert list(again.node_ids) == list(graph.node_ids)
    assert fingerprint(again) == fingerprint(graph)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(graphs())
def test_round_trip_of_any_graph(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
    folder = tmp_path_factory.mktemp("store") / "s"
    save(graph, folder)
    again = open_store(folder)
    # The constructor would refuse or clean anything that is not as it was.
    checked = Graph(**{name: getattr(again, name) for name in Graph.__dataclass_fields__})
    assert checked.cleaned == graph.cleaned
    assert fingerprint(again) == fingerprint(graph)


@given(st.lists(st.text(), max_size=5))
def test_text_ids_keep_any_text(ids: list[str]) -> None:
    ids = [i.encode(errors="replace").decode() for i in ids]
    packed = TextIds.pack(ids)
    assert list(packed) == ids
    assert packed[1:] == ids[1:]
    if ids:
        assert packed[-1] == ids[-1]
    with pytest.raises(IndexError):
        packed[len(ids)]


def test_arrays_are_memory_mapped(tmp_path: Path) -> None:
    save(example(), tmp_path / "s")
    graph = open_store(tmp_path / "s")
    assert isinstance(graph.features, np.memmap)
    assert isinstance(graph.indices, np.memmap)


def test_sparse_features_are_memory_mapped(tmp_path: Path) -> None:
    save(communities(sparse=True), tmp_path / "s")
    features = open_store(tmp_path / "s").features
    assert isinstance(features, csr_array)
    for part in (features.indices, features.data):
        assert not part.flags.writeable, "scipy has copied what it was given"


def test_checksum_is_that_of_the_file(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    output = subprocess.run(["sha256sum", tmp_path / "a.npy"], capture_output=True, check=True)
    assert output.stdout.decode().split()[0] == npy_sha256(array)


def _edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "graph.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: (s / "graph.json").unlink(), "has no graph.json"),
        (lambda s: (s / "graph.json").write_text("{"), "is not valid JSON"),
        (lambda s: (s / "graph.json").write_text("[]"), "does not describe a fastgcn store"),
        (lambda s: _edit_manifest(s, lambda m: m.update(schema=99)), "has store schema 99"),
        (lambda s: _edit_manifest(s, lambda m: m.pop("features")), "lacks features"),
        (lambda s: _edit_manifest(s, lambda m: m["arrays"].pop("train")), "does not list train"),
        (
            lambda s: _edit_manifest(s, lambda m: m["arrays"].update({"../x": {}})),
            "must be the name of an array that a store has, got '../x'",
        ),
        (lambda s: (s / "indices.npy").unlink(), "indices.npy is missing"),
        (lambda s: os.truncate(s / "features.npy", 130), "features.npy is damaged"),
        (lambda s: np.save(s / "labels.npy", np.zeros(9)), "labels.npy is damaged"),
        (lambda s: (s / "val.npy").write_bytes(b"junk"), "val.npy is damaged"),
    ],
)
def test_a_damaged_store_does_not_open(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    save(example(), tmp_path / "s")
    damage(tmp_path / "s")
    with pytest.raises(FastGCNError) as refused:
        open_store(tmp_path / "s")
    assert message in str(refused.value)


def test_an_object_array_is_never_unpickled(tmp_path: Path) -> None:
    save(example(), tmp_path / "s")
    np.save(tmp_path / "s" / "labels.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match=r"labels.npy is damaged"):
        open_store(tmp_path / "s")


WILD = 2**31 - 1


def _put(folder: Path, name: str, where: int | slice, value: Any) -> None:
    """Write other numbers into an array of a store, as a failing disk would."""
    array = np.load(folder / f"{name}.npy", mmap_mode="r+")
    array[where] = value
    array.flush()


@pytest.mark.parametrize(
    ("name", "where", "value"),
    [
        ("indptr", 0, 1),
        ("indptr", -1, 3),
        ("indptr", -1, -1),
        ("train", 0, 60),
        ("val", -1, -1),
        ("test", 2, WILD),
        ("labels", 3, 3),
        ("labels", 3, -2),
        ("labels", 3, np.iinfo(np.int64).max),
        ("labels", 3, np.iinfo(np.int64).min),
    ],
)
@pytest.mark.parametrize("class_names", [None, ["a", "b", "c"]])
def test_what_is_out_of_range_is_refused_when_a_store_opens(
    tmp_path: Path, name: str, where: int, value: int, class_names: list[str] | None
) -> None:
    store = tmp_path / "s"
    save(communities(class_names=class_names), store)
    open_store(store)
    _put(store, name, where, value)
    with pytest.raises(FormatError) as refused:
        open_store(store)
    assert str(refused.value).startswith(f"{store}/{name}.npy is damaged: ")
    assert str(refused.value).endswith(f"; run fastgcn info {store} --verify")


READERS: dict[str, Callable[[Graph], object]] = {
    "the training graph": lambda g: edges_of(g.csr, g.split.train),
    "a training graph in another order": lambda g: edges_of(g.csr, g.split.train[::-1]),
    "the whole graph": lambda g: gather(NormalizedRows(edges_of(g.csr, None), "symmetric"), None),
    "normalize": normalize,
    "predict": lambda g: predict(GCN([6, 4, 3]), g),
    "predict for one node": lambda g: predict(GCN([6, 4, 3]), g, [11]),
    "sampled prediction": lambda g: predict(GCN([6, 4, 3]), g, samples=5),
    "a new node": lambda g: predict_new(
        GCN([6, 4, 3]), g, features=np.zeros((1, 6)), source=[60], target=[11], default_weight=1
    ),
    "info": describe,
    "subgraph": lambda g: subgraph(g, [3, 11]),
    "to_scipy": Graph.to_scipy,
}
DAMAGE: dict[str, tuple[str, slice, int]] = {
    "wild columns": ("indices", slice(0, None), WILD),
    "negative columns": ("indices", slice(0, None), -1),
    "a column too many": ("indices", slice(0, None), 60),
    "rows that run backwards": ("indptr", slice(12, 13), 0),
    "rows before the first entry": ("indptr", slice(11, 12), -5),
    "rows behind the last entry": ("indptr", slice(12, 13), 10**12),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("name", "where", "value"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_edges_are_refused_when_they_are_read(
    tmp_path: Path,
    name: str,
    where: slice,
    value: int,
    read: Callable[[Graph], object],
    weighted: bool,
) -> None:
    save(communities(directed=True, weighted=weighted), tmp_path / "s")
    _put(tmp_path / "s", name, where, value)
    with pytest.raises(FormatError) as refused:
        read(open_store(tmp_path / "s"))
    assert str(refused.value).startswith(f"{tmp_path}/s/{name}.npy is damaged: ")
    assert str(refused.value).endswith(f"; run fastgcn info {tmp_path}/s --verify")


@pytest.mark.parametrize("read", ["the training graph", "the whole graph", "normalize", "predict"])
def test_columns_that_do_not_ascend_are_refused(tmp_path: Path, read: str) -> None:
    """Compiled code finds the entries of a part of the features by bisection."""
    save(communities(), tmp_path / "s")
    _put(tmp_path / "s", "indices", slice(0, None), 7)
    with pytest.raises(FormatError, match=r"indices.npy is damaged: the columns of a row do not a"):
        READERS[read](open_store(tmp_path / "s"))


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_a_part_that_names_a_node_twice_is_refused(tmp_path: Path, part: str) -> None:
    """A part longer than the graph was written beyond the end of an array of its length."""
    save(communities(), tmp_path / "s")
    nodes = np.repeat(np.load(tmp_path / "s" / f"{part}.npy"), 20)
    np.save(tmp_path / "s" / f"{part}.npy", nodes)
    manifest = json.loads((tmp_path / "s" / "graph.json").read_text())
    manifest["arrays"][part]["shape"] = [len(nodes)]
    (tmp_path / "s" / "graph.json").write_text(json.dumps(manifest))
    with pytest.raises(
        FormatError, match=rf"{part}.npy is damaged: it .*twice|{part}.npy .*at most"
    ):
        open_store(tmp_path / "s")


@pytest.mark.parametrize(
    ("name", "where", "value"),
    [
        ("features_indices", 4, 6),
        ("features_indices", 4, -1),
        ("features_indptr", 4, 10**6),
        ("features_indptr", 4, -1),
        ("features_indptr", 5, 0),
        ("features_indptr", 5, 2**32),
        ("features_indptr", 5, -(2**63)),
        ("features_indptr", 5, 2**63 - 1),
        ("features_indices", slice(3, 5), 0),  # of one row
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda graph: NodeFeatures(graph.features).take(np.arange(3)),
        lambda graph: column_statistics(graph.features, np.arange(3)),
        lambda graph: subgraph(graph, [3, 11]),
        lambda graph: graph.to_pyg(),
        lambda graph: graph.to_networkx(),
        describe,
    ],
    ids=["features", "statistics", "subgraph", "to_pyg", "to_networkx", "info"],
)
def test_damaged_sparse_features_are_refused(
    tmp_path: Path, name: str, where: int | slice, value: int, read: Callable[[Graph], object]
) -> None:
    save(communities(sparse=True), tmp_path / "s")
    _put(tmp_path / "s", name, where, value)
    with pytest.raises(FormatError, match=rf"s/{name}.npy is damaged: .* --verify"):
        read(open_store(tmp_path / "s"))


@pytest.mark.parametrize(
    ("name", "changed"),
    [("features_data", np.zeros(3, np.float32)), ("features_indptr", np.zeros(61, np.int64))],
)
def test_sparse_features_of_other_lengths_are_refused(
    tmp_path: Path, name: str, changed: Any
) -> None:
    store = tmp_path / "s"
    save(communities(sparse=True), store)
    np.save(store / f"{name}.npy", changed)
    _edit_manifest(store, lambda m: m["arrays"][name].update(shape=list(changed.shape)))
    with pytest.raises(FormatError, match=f"{name}.npy (is damaged: .* --verify|has the shape)"):
        open_store(store)


def test_an_id_that_is_no_text_is_refused(tmp_path: Path) -> None:
    save(example(), tmp_path / "s")
    _put(tmp_path / "s", "node_ids_text", 2, 0xFF)
    ids = open_store(tmp_path / "s").node_ids
    assert ids is not None
    assert ids[0] == "a"
    with pytest.raises(FormatError, match=r"node_ids_text.npy is damaged: the id of node 1 .* --v"):
        list(ids)


def test_feature_names_are_kept(tmp_path: Path) -> None:
    save(example(feature_names=["größe", "age"]), tmp_path / "s")
    assert open_store(tmp_path / "s").feature_names == ("größe", "age")
    save(example(), tmp_path / "t")
    assert open_store(tmp_path / "t").feature_names is None


def test_feature_names_of_a_store_of_an_earlier_version(tmp_path: Path) -> None:
    save(example(), tmp_path / "s", columns={"features": ["age", "income"]})
    _edit_manifest(tmp_path / "s", lambda m: m.pop("feature_names"))
    assert open_store(tmp_path / "s").feature_names == ("age", "income")
    save(example(), tmp_path / "lists", columns={"features": ["embedding"]})
    assert open_store(tmp_path / "lists").feature_names is None


def test_verify_finds_a_flipped_byte(tmp_path: Path) -> None:
    save(example(), tmp_path / "s")
    path = tmp_path / "s" / "features.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    open_store(tmp_path / "s")
    with pytest.raises(FormatError, match="features.npy is damaged: its checksum has changed"):
        open_store(tmp_path / "s", verify=True)


def test_verify_names_an_array_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="gone.npy is missing"):
        verify_arrays(tmp_path, {"gone": {}})


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    save(example(), tmp_path / "s")
    with pytest.raises(
        InputError, match=r"exists already; .* \(--force, or force=True in Python\)"
    ):
        save(example(), tmp_path / "s")
    save(example(name="other"), tmp_path / "s", force=True)
    assert open_store(tmp_path / "s").name == "other"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="not a fastgcn store and will not be overwritten"):
        save(example(), tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), StoreWriter(tmp_path / "s") as writer:
        writer.put("indptr", np.zeros(3, np.int64))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_killed_write_leaves_no_store(tmp_path: Path) -> None:
    code = """
        import os, signal, sys
        import numpy as np
        from fastgcn.data.store import StoreWriter
        with StoreWriter(sys.argv[1]) as writer:
            writer.put("indptr", np.zeros(3, np.int64))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "s")], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "s").exists()
    with pytest.raises(FastGCNError, match="not a fastgcn store"):
        open_store(tmp_path / ".s.partial")
    save(example(), tmp_path / "s")
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("how", ["put", "create"])
def test_a_full_disk_is_one_sentence(tmp_path: Path, how: str) -> None:
    with (
        small_disk(4096),
        pytest.raises(WriteError, match="nothing was left behind"),
        StoreWriter(tmp_path / "s") as writer,
    ):
        if how == "put":
            writer.put("features", np.zeros((1000, 10)))
        else:
            writer.create("features", (1000, 10), np.float32)
    assert list(tmp_path.iterdir()) == []


def test_stream_and_create_write_what_numpy_writes(tmp_path: Path) -> None:
    save(example(), tmp_path / "s")
    whole = open_store(tmp_path / "s")
    with StoreWriter(tmp_path / "t") as writer:
        for name, array in arrays_of(whole).items():
            if array.ndim == 1:
                with writer.stream(name, array.dtype) as stream:
                    for piece in np.array_split(array, 3):
                        stream.write(piece)
            else:
                writer.create(name, array.shape, array.dtype)[:] = array
        writer.finish(name="t", directed=False, n_features=2, n_classes=2)
    assert fingerprint(open_store(tmp_path / "t", verify=True)) == fingerprint(whole)
