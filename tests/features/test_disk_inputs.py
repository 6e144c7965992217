"""ÂX on disk: as memory would hold it, found again, continued after a kill, and checked."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import numpy as np
import pytest
import torch

import fastgcn.features.disk
import fastgcn.features.propagate
import fastgcn.scratch
from fastgcn import Graph, normalize, open_store, propagate, save
from fastgcn.arrays import AnyArray, FloatArray
from fastgcn.errors import FormatError, InputError
from fastgcn.features.disk import InputBlocks, first_layer_rows, inputs_key, kept_inputs
from fastgcn.features.encoded import DTYPES, EncodedStore, encoded
from fastgcn.features.store import NodeFeatures
from fastgcn.graph.adjacency import NormalizedRows
from fastgcn.graph.edges import GraphEdges
from fastgcn.scratch import Scratch
from tests.communities import communities

GRAPH = communities()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of five rows and chunks of ten."""
    monkeypatch.setattr(fastgcn.features.disk, "_BLOCK_BYTES", 5 * 6 * 4)
    monkeypatch.setattr(fastgcn.features.propagate, "CHUNK_BYTES", 10 * 6 * 4)


def blocks(dtype: str = "float32", *, beside: bool = False) -> InputBlocks:
    return InputBlocks(normalize(GRAPH), NodeFeatures(GRAPH.features), dtype, beside=beside)


def kept(folder: Path | None, rows: InputBlocks | None = None) -> EncodedStore:
    rows = rows or blocks()
    return kept_inputs(GRAPH, inputs_key(GRAPH, "symmetric", rows.features), rows, folder, 0)


def expected(*, beside: bool = False) -> FloatArray:
    mixed = propagate(normalize(GRAPH), NodeFeatures(GRAPH.features))
    return np.concatenate([mixed, GRAPH.features], axis=1) if beside else mixed


def files(folder: Path) -> tuple[Path, Path]:
    """The rows, and the list of their checksums."""
    (inside,) = (folder / "inputs").iterdir()
    return inside / "rows.bin", inside / "rows.json"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("hot", [0, 7, 60])
def test_rows_by_number(dtype: str, beside: bool, hot: int, tmp_path: Path) -> None:
    rows = kept(tmp_path, blocks(dtype, beside=beside))
    rows.keep_hot(np.arange(60)[::-1], hot * rows.bits.shape[1] * 2)
    ids = np.random.default_rng(0).integers(0, 60, 300)  # more than one thread reads
    rounded = torch.from_numpy(expected(beside=beside)).to(DTYPES[dtype]).float()
    assert torch.equal(rows.take(ids), rounded[ids])
    np.testing.assert_array_equal(rows.between(3, 9), rounded[3:9].numpy())


def test_float16_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(InputError, match=r"up to 65,504, but ÂX has 1e\+05; use bfloat16"):
        encoded(np.full((1, 1), -1e5, np.float32), "float16")


def test_a_file_that_is_cut_while_in_use_gets_a_sentence(tmp_path: Path) -> None:
    rows = kept(tmp_path)
    os.truncate(files(tmp_path)[0], 100)
    with pytest.raises(FormatError, match="a file of ÂX could not be read: it was cut"):
        rows.take(np.array([50]))
    with pytest.raises(FormatError, match="a file of ÂX could not be read: it was cut"):
        rows.between(40, 50)


class Counting(InputBlocks):
    """Blocks that remember which of them were computed."""

    def __init__(self, *, stop_after: int | None = None) -> None:
        super().__init__(normalize(GRAPH), NodeFeatures(GRAPH.features), "float32")
        self.made: list[int] = []
        self.stop_after = stop_after

    def blocks(
        self, ranges: list[tuple[int, int]], chunk_bytes: int
    ) -> Iterator[tuple[int, AnyArray]]:
        for start, bits in super().blocks(ranges, chunk_bytes):
            if len(self.made) == self.stop_after:
                raise KeyboardInterrupt
            self.made.append(start)
            yield start, bits


def test_found_again(tmp_path: Path) -> None:
    first, again = Counting(), Counting()
    kept(tmp_path, first)
    rows = kept(tmp_path, again)
    assert (first.made, again.made) == (list(range(0, 60, 5)), [])
    np.testing.assert_array_equal(rows.between(0, 60), expected())


def test_an_interruption_costs_no_whole_block(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path, Counting(stop_after=7))
    rest = Counting()
    rows = kept(tmp_path, rest)
    assert rest.made == list(range(35, 60, 5))
    np.testing.assert_array_equal(rows.between(0, 60), expected())


def test_damage_is_found_and_only_that_computed_again(tmp_path: Path) -> None:
    kept(tmp_path)
    data, _ = files(tmp_path)
    with data.open("r+b") as file:
        file.seek(12 * 6 * 4)
        file.write(b"\0\1\2\3")
    again = Counting()
    rows = kept(tmp_path, again)
    assert again.made == [10]
    np.testing.assert_array_equal(rows.between(0, 60), expected())


@pytest.mark.parametrize("damage", ["cut", "list", "other list", "no list"])
def test_any_other_damage_is_computed_again(damage: str, tmp_path: Path) -> None:
    kept(tmp_path)
    data, listed = files(tmp_path)
    if damage == "cut":
        data.write_bytes(data.read_bytes()[:-1])
    elif damage == "list":
        listed.write_text("{")
    elif damage == "other list":
        listed.write_text(json.dumps({"about": {}, "sha256": []}))
    else:
        listed.unlink()
    again = Counting()
    rows = kept(tmp_path, again)
    assert again.made == list(range(0, 60, 5))
    np.testing.assert_array_equal(rows.between(0, 60), expected())


def test_each_kind_has_its_own_file(tmp_path: Path) -> None:
    features = NodeFeatures(GRAPH.features)
    keys = [
        inputs_key(GRAPH, "symmetric", features),
        inputs_key(GRAPH, "row", features),
        inputs_key(GRAPH, "symmetric", NodeFeatures(GRAPH.features, "row")),
        inputs_key(GRAPH, "symmetric", NodeFeatures(GRAPH.features, "none", np.arange(30))),
        inputs_key(GRAPH, "symmetric", features, np.arange(30)),
        inputs_key(communities(seed=1), "symmetric", features),
    ]
    assert len({json.dumps(key) for key in keys}) == len(keys)
    for rows in (blocks(), blocks("float16"), blocks(beside=True)):
        kept(tmp_path, rows)
    assert len(list((tmp_path / "inputs").iterdir())) == 3


def test_a_store_keeps_its_own(tmp_path: Path) -> None:
    save(GRAPH, tmp_path / "store")
    graph = open_store(tmp_path / "store")
    features = NodeFeatures(graph.features)
    rows = InputBlocks(NormalizedRows(GraphEdges(graph.csr), "symmetric"), features, "float32")
    kept_inputs(graph, inputs_key(graph, "symmetric", features), rows, tmp_path / "run", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert files(tmp_path / "store")[0].stat().st_size == 60 * 6 * 4
    np.testing.assert_array_equal(open_store(tmp_path / "store", verify=True).labels, GRAPH.labels)


def test_without_a_place_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(kept(None).between(0, 60), expected())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("room", [0, 10**9])
def test_rows_of_some_nodes(room: int, tmp_path: Path) -> None:
    nodes = np.array([3, 10, 41])
    source, features = (
        NormalizedRows(GraphEdges(GRAPH.csr), "symmetric"),
        NodeFeatures(GRAPH.features),
    )
    rows = first_layer_rows(
        GRAPH,
        source,
        features,
        nodes,
        normalization="symmetric",
        dtype="float32",
        folder=tmp_path,
        room=room,
    )
    np.testing.assert_allclose(rows.between(0, 3), expected()[nodes], rtol=1e-6)
    assert bool(list(tmp_path.iterdir())) == (room == 0), "what has room is not kept for later"


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
import fastgcn.features.disk, fastgcn.features.propagate
from tests.features.test_disk_inputs import Counting, kept
fastgcn.features.disk._BLOCK_BYTES = 5 * 6 * 4
fastgcn.features.propagate.CHUNK_BYTES = 10 * 6 * 4
class Killed(Counting):
    def blocks(self, ranges, chunk_bytes):
        for start, bits in super().blocks(ranges, chunk_bytes):
            if start == 30:
                os.kill(os.getpid(), signal.SIGKILL)
            yield start, bits
kept(Path(sys.argv[1]), Killed())
"""


def test_killed_for_real(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], env=os.environ, check=False
    )
    assert done.returncode == -signal.SIGKILL
    rest = Counting()
    rows = kept(tmp_path, rest)
    assert rest.made == list(range(30, 60, 5))
    np.testing.assert_array_equal(rows.between(0, 60), expected())


class Holding(Counting):
    """Blocks, the first of which takes as long as a file `go` is not there."""

    def __init__(self, go: Path) -> None:
        super().__init__()
        self.go = go

    def blocks(
        self, ranges: list[tuple[int, int]], chunk_bytes: int
    ) -> Iterator[tuple[int, AnyArray]]:
        self.go.with_name("begun").touch()
        while not self.go.exists():
            time.sleep(0.001)
        yield from super().blocks(ranges, chunk_bytes)


def test_only_one_at_a_time_computes_and_the_next_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(fastgcn.features.disk, "note", said.put)
    go = tmp_path / "go"
    first, second = Holding(go), Counting()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(kept, tmp_path, first)
        while not go.with_name("begun").exists():
            assert not one.done()
            time.sleep(0.001)
        other = pool.submit(kept, tmp_path, second)
        try:
            assert "Waiting for another process that computes" in said.get(timeout=60)
        finally:
            go.touch()
    assert (first.made, second.made) == (list(range(0, 60, 5)), [])
    for rows in (one.result(), other.result()):
        np.testing.assert_array_equal(rows.between(0, 60), expected())


def test_a_full_disk_is_named_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: IO[bytes], size: int) -> None:
        file.truncate(size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fastgcn.scratch, "reserve", full)
    with pytest.raises(InputError, match=r"inputs/\w+ has no room for 0 MB of ÂX \(No space left"):
        kept(tmp_path)
    assert files_of(tmp_path) == [("rows.bin", 0)]
    with pytest.raises(InputError, match="has no room for 0 MB of what does not fit in memory"):
        Scratch((3, 2), np.float32, tmp_path)


def files_of(folder: Path) -> list[tuple[str, int]]:
    (inside,) = (folder / "inputs").iterdir()
    return [(path.name, path.stat().st_size) for path in inside.iterdir()]


def test_graphs_are_not_confused(tmp_path: Path) -> None:
    """Another graph of the same size in the same folder has its own rows."""

    def rows_of(graph: Graph) -> FloatArray:
        features = NodeFeatures(graph.features)
        rows = InputBlocks(normalize(graph), features, "float32")
        key = inputs_key(graph, "symmetric", features)
        found: FloatArray = kept_inputs(graph, key, rows, tmp_path, 0).between(0, 60).numpy()
        return found

    other = communities(seed=1)
    rows_of(GRAPH)
    np.testing.assert_array_equal(
        rows_of(other), propagate(normalize(other), NodeFeatures(other.features))
    )
