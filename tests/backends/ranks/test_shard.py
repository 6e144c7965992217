"""Cutting a graph into parts, and opening each without the others."""

import json
import shutil
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fastgcn import Graph, Split
from fastgcn.data.load import load
from fastgcn.data.shards import BALANCED_BY, cut, is_sharded, open_parts, shard
from fastgcn.data.store import save
from fastgcn.errors import FormatError, InputError, MissingFileError, WriteError
from tests.cli_runner import run_cli
from tests.communities import communities


def star(n: int, train: list[int]) -> Graph:
    """Node 0 has an edge to every other."""
    ends = np.zeros(n - 1, np.int64), np.arange(1, n)
    labels, split = np.zeros(n, np.int64), Split(train=np.array(train, np.int64))
    return Graph.from_edges(*ends, features=np.ones((n, 2)), labels=labels, split=split)


@given(n=st.integers(2, 40), parts=st.integers(1, 40), by=st.sampled_from(BALANCED_BY))
def test_ranges_cover_all_nodes_and_none_is_empty(n: int, parts: int, by: str) -> None:
    bounds = cut(star(n, list(range(n // 2))), min(parts, n), by)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, n, min(parts, n) + 1)
    assert np.all(np.diff(bounds) > 0)


@pytest.mark.parametrize("by", BALANCED_BY)
def test_ranges_are_balanced(by: str) -> None:
    graph = communities(n=400)
    member = np.zeros(400)
    member[graph.split.train] = 1
    weights = {"nodes": np.ones(400), "edges": np.diff(graph.indptr), "train": member}[by]
    shares = [weights[a:b].sum() for a, b in pairwise(cut(graph, 4, by))]
    assert max(shares) < 1.1 * min(shares)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"weighted": True, "directed": True},
        {"sparse": True},
        {"multilabel": True},
        {"node_ids": np.arange(60)[::-1] * 10},
        # Some of them look like numbers.
        {"node_ids": [*(f"ä{i}" for i in range(50)), *map(str, range(10))]},
    ],
    ids=["plain", "weighted", "sparse", "multilabel", "numbered", "named"],
)
@pytest.mark.parametrize("processes", [1, 3, 5])
def test_parts_hold_the_rows_of_the_whole(
    fields: dict[str, Any], processes: int, tmp_path: Path
) -> None:
    save(communities(**fields), tmp_path / "store")
    graph = load(tmp_path / "store")
    cuts = shard(graph, 5, tmp_path / "parts")
    assert is_sharded(tmp_path / "parts")
    bounds = cuts[{1: [0, 5], 3: [0, 1, 3, 5], 5: [0, 1, 2, 3, 4, 5]}[processes]]
    files = sorted(path.name for path in (tmp_path / "parts").iterdir())
    for number, (first, stop) in enumerate(pairwise(bounds.tolist())):
        part = open_parts(tmp_path / "parts", number, processes)
        np.testing.assert_array_equal(part.bounds, bounds)
        names = part.node_ids
        assert (names is None) == (graph.node_ids is None)
        if names is not None and graph.node_ids is not None:
            ours = [names[i] for i in range(len(names))]
            assert ours == [graph.node_ids[i] for i in range(first, stop)]
        begin, end = graph.indptr[first], graph.indptr[stop]
        np.testing.assert_array_equal(part.csr.indices, graph.indices[begin:end])
        np.testing.assert_array_equal(np.diff(part.csr.indptr), np.diff(graph.indptr)[first:stop])
        if graph.weights is not None:
            np.testing.assert_array_equal(part.csr.weights, graph.weights[begin:end])
        rows: Any = part.features
        whole: Any = graph.features[first:stop]
        if isinstance(rows, csr_array):
            rows, whole = rows.toarray(), whole.toarray()
        np.testing.assert_array_equal(rows, whole)
        np.testing.assert_array_equal(part.labels, graph.labels[first:stop])  # type: ignore[index]
        for (_, own), (_, every) in zip(part.split.items(), graph.split.items(), strict=True):
            np.testing.assert_array_equal(own, every[(every >= first) & (every < stop)])
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == files


def test_parts_that_are_joined_are_mapped(tmp_path: Path) -> None:
    """A process that takes several parts has their rows in no more memory than those of one."""
    shard(communities(), 4, tmp_path / "parts")
    part = open_parts(tmp_path / "parts", 0, 2)
    for array in (part.features, part.labels, part.csr.indices):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def test_the_outline_is_as_large_as_the_whole_and_holds_nothing(tmp_path: Path) -> None:
    graph = communities()
    shard(graph, 2, tmp_path / "parts")
    outline = open_parts(tmp_path / "parts", 1, 2).outline
    assert repr(outline) == repr(graph)
    assert outline.class_names == graph.class_names
    assert (
        outline.stored_fingerprint
        == open_parts(tmp_path / "parts", 0, 2).outline.stored_fingerprint
    )
    for (_, ours), (_, theirs) in zip(outline.split.items(), graph.split.items(), strict=True):
        assert len(ours) == len(theirs)
    assert outline.features.strides == (0, 0)


def test_sharding_takes_little_memory(tmp_path: Path) -> None:
    n = 20_000
    graph = star(n, [0, 1, 2])
    wide = Graph.trusted(
        **{name: getattr(graph, name) for name in graph.__dataclass_fields__}
        | {"features": np.ones((n, 500), np.float32)}
    )
    save(wide, tmp_path / "store")
    store = load(tmp_path / "store")
    tracemalloc.start()
    shard(store, 2, tmp_path / "parts")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6  # the features are ten times that


def test_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    for force, sentence in ((False, "exists already"), (True, "is not a folder of shards")):
        with pytest.raises(InputError, match=sentence):
            shard(communities(), 2, out, force=force)
    shard(communities(), 2, tmp_path / "parts")
    shard(communities(), 3, tmp_path / "parts", force=True)
    assert len(list((tmp_path / "parts").iterdir())) == 3


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fastgcn.data.shards.write_npy", full)
    with pytest.raises(WriteError, match="No space left on device; free some space"):
        shard(communities(), 2, tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("parts", "by", "sentence"),
    [
        (0, "nodes", "parts must lie in 1..60, the nodes of communities, got 0"),
        (61, "nodes", "parts must lie in 1..60"),
        (2, "node", "by must be one of train, nodes, edges, got 'node'; did you mean 'nodes'?"),
    ],
)
def test_bad_requests_are_refused(parts: int, by: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence.replace("?", "[?]")):
        shard(communities(), parts, tmp_path / "parts", by=by)


def test_damaged_parts_are_refused(tmp_path: Path) -> None:
    shard(communities(), 2, tmp_path / "parts")
    part = tmp_path / "parts" / "part-1"
    manifest = part / "part.json"
    good = manifest.read_text()
    with pytest.raises(InputError, match="can be shared by at most 2 of the 3 processes"):
        open_parts(tmp_path / "parts", 1, 3)
    with pytest.raises(MissingFileError, match="elsewhere has no part of a graph"):
        open_parts(tmp_path / "elsewhere", 1, 2)
    for text, sentence in [
        ("{", "is not valid JSON"),
        ("[]", "does not describe a part"),
        (
            json.dumps({"kind": "fastgcn-part", "schema": 1}),
            "describe a part of schema 2 or 3; shard",
        ),
        (json.dumps({"kind": "fastgcn-part", "schema": 2, "number": 1}), "lacks arrays"),
        (json.dumps(json.loads(good) | {"number": 0}), "holds part 0; it was renamed"),
    ]:
        manifest.write_text(text)
        with pytest.raises(FormatError, match=sentence):
            open_parts(tmp_path / "parts", 1, 2)
    manifest.write_text(good)
    (part / "labels.npy").unlink()
    with pytest.raises(FormatError, match="labels.npy is missing"):
        open_parts(tmp_path / "parts", 1, 2)
    shutil.move(part, tmp_path / "away")
    with pytest.raises(MissingFileError, match="part-1 is missing: this process needs that part"):
        open_parts(tmp_path / "parts", 1, 2)
    shutil.move(tmp_path / "away", part)
    np.save(part / "labels.npy", np.zeros(3))
    with pytest.raises(FormatError, match="labels.npy is damaged: part.json says"):
        open_parts(tmp_path / "parts", 1, 2)


def test_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli(capfd, "shard", "digits", "--parts", 2, "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert sum(found.pop("nodes")) == 1797
    assert found == {"out": "digits-2-parts", "parts": 2, "by": "train"}
    alone = run_cli(capfd, "train", "digits-2-parts")
    assert alone.code == 1
    assert "is a folder of shards, for several processes: torchrun" in alone.err
