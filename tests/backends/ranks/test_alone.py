"""A group of one rank, and what several ranks refuse: in this process, without others."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fastgcn import Split, fit, load
from fastgcn.backends.ranks.backend import check_ranks_can
from fastgcn.backends.ranks.collectives import Communicator
from fastgcn.backends.ranks.distributions import RankNumbering
from fastgcn.backends.ranks.joining import agreed_prefix
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.backends.ranks.shard import Shard
from fastgcn.cli.data import open_data
from fastgcn.cli.train import run_folder
from fastgcn.errors import InputError
from tests.communities import communities, quick, without_times


def test_one_rank_is_one_process() -> None:
    graph = communities()
    shard = Shard.of_graph(graph, ProcessGroup(0, 1, timeout=1.0))
    ours = fit(graph, quick(hidden=(8, 8), self_term="exact"), shard=shard)
    theirs = fit(graph, quick(hidden=(8, 8), self_term="exact"))
    for mine, other in zip(ours.history, theirs.history, strict=True):
        for name, value in without_times(mine).items():
            assert value == pytest.approx(other[name], rel=1e-5), name
    assert ours.metrics["sent_bytes"] == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "gcn"}, "method = 'gcn' cannot be trained by several processes; use fastgcn"),
        ({"distribution": "optimal"}, "'optimal' .*; use importance, uniform, flat, ladies, or a"),
        ({"draws": "poisson"}, "draws = 'poisson' .*; use independent, systematic, stratified"),
        ({"norm": "batch"}, "norm = 'batch' .*; use layer or none, or a single process"),
        ({"samples": "auto"}, "samples = 'auto' .*; use numbers, from fastgcn diagnose"),
        ({"history": True}, "history = True .*; use false"),
        ({"neighbors_only": True}, "neighbors_only = True"),
        ({"memory": "4GB"}, "memory = '4GB'"),
        ({"inputs_dtype": "float16"}, "inputs_dtype = 'float16'"),
    ],
)
def test_what_ranks_cannot_do_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check_ranks_can(quick(**settings))


def test_a_graph_without_labels_is_refused() -> None:
    with pytest.raises(InputError, match="has no labels, and training needs them"):
        Shard.of_graph(
            communities(labels=None, class_names=None, split=Split()),
            ProcessGroup(0, 1, timeout=1.0),
        )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ("Timed out waiting 1000ms", "rank 0 waited 1 s for rank 1 to exchange rows"),
        ("Connection closed by peer", "rank 0 lost rank 1 while they exchanged rows"),
    ],
)
def test_a_lost_peer_is_named(error: str, sentence: str) -> None:
    class Request:
        def wait(self, _: object) -> None:
            raise RuntimeError(error)

    with pytest.raises(RuntimeError, match=sentence):
        Communicator(None, 0, 2, timeout=1.0).wait([(1, Request())], "rows")


def test_a_timeout_must_be_positive() -> None:
    with pytest.raises(InputError, match="timeout must be above 0 seconds, got 0"):
        ProcessGroup.join(timeout=0)


class Keys(dict[str, bytes]):
    """A store as torch has them, in this process."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def append(self, key: str, value: str) -> None:
        self[key] = super().get(key, b"") + value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def get(self, key: str) -> bytes:  # type: ignore[override]
        while key not in self:
            time.sleep(0.001)
        return self[key]


def test_ranks_meet_in_a_store_that_earlier_ones_have_used() -> None:
    store: Any = Keys()
    with ThreadPoolExecutor(3) as pool:
        lives = [
            [f.result() for f in [pool.submit(agreed_prefix, store, r, 3, 30) for r in order]]
            for order in ([2, 1, 0], [0, 1, 2], [1, 0, 2])
        ]
    assert [len(set(life)) for life in lives] == [1, 1, 1]
    assert len({life[0] for life in lives}) == 3
    with pytest.raises(RuntimeError, match="rank 1 has not joined"):
        agreed_prefix(cast(Any, Keys()), 0, 2, 0.02)


def group_of_one(store: Any = None) -> ProcessGroup:
    return ProcessGroup(0, 1, timeout=1.0, store=store)


@pytest.mark.parametrize("asked", [Path("mine"), None])
def test_only_a_run_that_these_processes_began_is_continued(
    asked: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started again, they go on with it; what was there before they never take for theirs."""
    monkeypatch.chdir(tmp_path)
    store = Keys()
    for earlier in (Path("runs/g-1"), Path("mine")):
        earlier.mkdir(parents=True)
        (earlier / "config.json").touch()
    for _ in range(2):  # lives, each of which fails before it makes a folder
        path, again = run_folder(group_of_one(store), asked, "g")
        assert (path, again) == (asked or Path("runs/g-2"), False)
    fresh = None if asked is None else Path("other")
    path, _ = run_folder(group_of_one(store), fresh, "g")
    path.mkdir()
    (path / "config.json").touch()
    assert run_folder(group_of_one(store), fresh, "g") == (path, True)
    assert run_folder(group_of_one(Keys()), fresh, "g")[1] is False  # of another launch
    assert run_folder(None, fresh, "g")[1] is False


def test_a_single_process_under_torchrun_can_do_what_one_can() -> None:
    """It has no shard, and so no setting that processes with shares cannot train with."""
    graph, shard = open_data(group_of_one(), "digits", lambda: load("digits"))
    assert graph.name == "digits"
    assert shard is None


def test_numbers_wrap_round() -> None:
    numbers = RankNumbering(np.array([0, 2, 5, 6]), 1, np.full(6, -1, np.int32))
    assert numbers.local(np.arange(6)).tolist() == [4, 5, 0, 1, 2, 3]
    assert numbers.own(np.array([4, 0, 2])).tolist() == [2, 0]
    assert numbers.owners(np.arange(6)).tolist() == [0, 0, 1, 1, 1, 2]
    assert numbers.counts(np.array([1, 2, 3, 5])) == [1, 2, 1]
