"""The store: what goes in comes out, memory-mapped; what is not whole does not open."""

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fastgcn import Graph, fingerprint, open_store, save
from fastgcn.data.layout import TextIds, arrays_of, npy_sha256
from fastgcn.data.store import StoreWriter
from fastgcn.errors import FastGCNError, FormatError, InputError
from tests.strategies import graphs, split_of


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
            "names an array that no store has",
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


def test_verify_finds_a_flipped_byte(tmp_path: Path) -> None:
    save(example(), tmp_path / "s")
    path = tmp_path / "s" / "features.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    open_store(tmp_path / "s")
    with pytest.raises(FormatError, match="features.npy is damaged: its checksum has changed"):
        open_store(tmp_path / "s", verify=True)


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    save(example(), tmp_path / "s")
    with pytest.raises(InputError, match="exists already"):
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
    (left,) = tmp_path.iterdir()
    with pytest.raises(FastGCNError, match="not a fastgcn store"):
        open_store(left)


@pytest.mark.parametrize("how", ["put", "create"])
def test_a_full_disk_is_one_sentence(tmp_path: Path, how: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with (
            pytest.raises(InputError, match="nothing was left behind"),
            StoreWriter(tmp_path / "s") as writer,
        ):
            if how == "put":
                writer.put("features", np.zeros((1000, 10)))
            else:
                writer.create("features", (1000, 10), np.float32)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
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
