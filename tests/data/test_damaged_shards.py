"""Every array and every field of a shard, damaged in every way: only this package's errors."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn import Graph, fit
from fastgcn.arrays import IntArray
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.backends.ranks.shard import Shard
from fastgcn.data.shards import open_parts, shard, verify_shards
from fastgcn.data.store import open_store, save
from fastgcn.errors import FormatError
from tests.communities import communities, quick
from tests.damage import (
    Damage,
    array_damage,
    damaged_copies,
    edit_manifest,
    json_damage,
    only_our_errors,
)
from tests.thorough import some

KINDS: dict[str, dict[str, Any]] = {
    "dense": {"weighted": True, "node_ids": [f"n{i}" for i in range(60)]},
    "sparse": {"sparse": True},
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for kind, fields in KINDS.items():
        shard(communities(**fields), 2, folder / kind, by="nodes")
    return folder


def train(folder: Path) -> None:
    """One process that joins both parts."""
    part = open_parts(folder, 0, 1)
    group = ProcessGroup(0, 1, timeout=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of infinities and NaN
        fit(part.outline, quick(epochs=1), shard=Shard.of_part(part, group))


def check(shards: Path, kind: str, cases: Iterable[Damage], tmp_path: Path) -> None:
    copy = tmp_path / "parts"
    for what in damaged_copies(shards / kind, copy, cases, "part-1"):
        if only_our_errors(what, lambda: open_parts(copy, 1, 2)):
            only_our_errors(what, lambda: train(copy))


ARRAYS = [
    *(("dense", name) for name in ("indptr", "indices", "weights", "features", "labels", "train")),
    *(("dense", name) for name in ("node_ids_text", "node_ids_offsets")),
    *(("sparse", name) for name in ("features_indptr", "features_indices", "features_data", "val")),
]


@pytest.mark.parametrize(("kind", "name"), ARRAYS)
def test_a_damaged_array(shards: Path, tmp_path: Path, kind: str, name: str) -> None:
    cases = some(array_damage(shards / kind / "part-1" / f"{name}.npy"), every=2)
    check(shards, kind, cases, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_manifest(shards: Path, tmp_path: Path, kind: str) -> None:
    cases = some(json_damage(shards / kind / "part-1" / "part.json"), every=5)
    check(shards, kind, cases, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_shards_are_read_and_verified(shards: Path, kind: str) -> None:
    train(shards / kind)
    assert verify_shards(shards / kind)


def test_a_changed_bit_is_found(shards: Path, tmp_path: Path) -> None:
    (what,) = damaged_copies(shards / "dense", tmp_path / "parts", [("nothing", lambda _: None)])
    path = tmp_path / "parts" / "part-1" / "features.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert what == "nothing"
    with pytest.raises(FormatError, match=r"features.npy is damaged: its checksum has changed"):
        verify_shards(tmp_path / "parts")


def test_shards_of_an_earlier_version_are_read_and_cannot_be_verified(tmp_path: Path) -> None:
    shard(communities(), 2, tmp_path / "parts")
    for number in (0, 1):
        edit_manifest(
            tmp_path / "parts" / f"part-{number}",
            lambda m: [said.pop("sha256") for said in m["arrays"].values()],
        )
    train(tmp_path / "parts")
    assert not verify_shards(tmp_path / "parts")


def with_columns(columns: IntArray) -> Graph:
    graph = communities()
    fields = {name: getattr(graph, name) for name in graph.__dataclass_fields__}
    return Graph.trusted(**fields | {"indices": columns})


def test_a_graph_whose_columns_do_not_ascend_is_not_sharded(tmp_path: Path) -> None:
    disordered = communities().indices.copy()
    disordered[:2] = disordered[1::-1]
    with pytest.raises(FormatError, match="the columns of a row do not ascend"):
        shard(with_columns(disordered), 2, tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("node", [0, 40])
def test_a_graph_with_a_loop_is_not_sharded(tmp_path: Path, node: int) -> None:
    """Its rows ascend; those of A + I would not."""
    graph = communities()
    looped = graph.indices.copy()
    row = looped[graph.indptr[node] : graph.indptr[node + 1]]
    row[np.searchsorted(row, node) - (row[-1] < node)] = node
    with pytest.raises(FormatError, match="a node is joined to itself"):
        shard(with_columns(looped), 2, tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["features", "weights", "indices"])
def test_a_damaged_store_is_not_copied(tmp_path: Path, name: str) -> None:
    """A copy gets checksums of its own, under which the damage would no longer be found."""
    save(communities(weighted=True), tmp_path / "store")
    array = np.load(tmp_path / "store" / f"{name}.npy", mmap_mode="r+")
    array.reshape(-1)[-1] += 1
    array.flush()
    graph = open_store(tmp_path / "store")
    for copy in (lambda: shard(graph, 2, tmp_path / "x"), lambda: save(graph, tmp_path / "x")):
        with pytest.raises(FormatError, match=f"{name}.npy is damaged: its checksum has changed"):
            copy()
        assert not (tmp_path / "x").exists()
