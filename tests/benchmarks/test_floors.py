"""Floors: what is counted is what a step needs, and no step is faster."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.floors import floor_seconds, rates, work
from scipy.sparse import csr_array

import fastgcn
from benchmarks import full_batch, speed
from fastgcn.report.page import Table

PAPER = fastgcn.paper_cora().replace(inductive=False, samples=40, batch_size=64, hidden=16)


def test_a_full_passs_work_is_counted_by_hand() -> None:
    graph = fastgcn.load("digits")
    n, entries = graph.n_nodes, fastgcn.normalize(graph).indices.size
    config = PAPER.replace(method="gcn", precompute=True)
    found, train = work(graph, config), len(graph.split.train)
    assert found["input_bytes"] == 4 * n * 64 * (train < n) + 4 * train * 64 * (train == n)
    assert found["operations"] > 2 * 64 * 16 * 2 * train + 2 * 16 * 10 * 3 * train
    assert 8 * train < found["other_bytes"] - 24 * (64 * 16 + 16 * 10) <= 8 * entries
    assert found["launches"] == 3 * 2 - 1 + 2 * 1 + 2


def test_own_rows_and_layers_add_work() -> None:
    graph = fastgcn.load("digits")
    plain = work(graph, PAPER)
    own = work(graph, PAPER.replace(skip=True, input_skip=True))
    assert own["operations"] > plain["operations"]
    assert own["other_bytes"] > plain["other_bytes"]
    sampled = work(graph, PAPER.replace(precompute=False))
    assert sampled["launches"] == plain["launches"] + 2


def test_sparse_features_are_counted_by_their_entries() -> None:
    graph = fastgcn.load("digits")
    sparse = dataclasses.replace(graph, features=csr_array(np.asarray(graph.features)))
    config = PAPER.replace(method="gcn", precompute=False, input_skip=True)
    dense, found = work(graph, config), work(sparse, config)
    share = np.count_nonzero(graph.features) / graph.features.size
    first_products = (dense["operations"] - found["operations"]) / (1 - share)
    rest = dense["operations"] - first_products
    assert 0 < rest < found["operations"] < dense["operations"]
    assert found["input_bytes"] == dense["input_bytes"] * min(1.0, 2 * share)
    assert found["other_bytes"] == dense["other_bytes"]


def test_a_step_takes_longer_than_its_floor() -> None:
    found = speed.costs(data="digits", preset="paper", device="cpu", epochs=3, repeats=1)
    floor = speed.step_floor("digits", "paper", "cpu")
    assert 0 < floor_seconds(floor["work"], floor["rates"]) < found["step"]


def test_rates_are_those_of_a_machine() -> None:
    graph = fastgcn.load("digits")
    machine = rates(graph, work(graph, PAPER), "cpu")
    assert machine["launch"] == 0
    for name in ("input_bandwidth", "other_bandwidth", "peak"):
        assert 1e8 < machine[name] < 1e14


def test_full_batch_learns_and_the_default_beside_it() -> None:
    graph = fastgcn.load("digits")
    torch.set_warn_always(True)  # another test may have been warned before
    try:
        with pytest.warns(UserWarning, match="Sparse"):
            curve = full_batch.peer(
                graph, fast=False, hidden=16, dropout=0.2, epochs=30, device="cpu"
            )
    finally:
        torch.set_warn_always(False)
    assert [*curve] == sorted(curve)
    assert curve[-1][1] > 0.9
    found = full_batch.default(graph, seed=0, device="cpu", epochs=3)
    assert found["curve"][-1][0] < found["whole"]
    assert found["chosen"] in ("sampled", "full passes")


def record(**fields: Any) -> dict[str, Any]:
    return {"work": {"input_bytes": 0, "other_bytes": 0, "operations": 0, "launches": 10},
            "rates": {"input_bandwidth": 1, "other_bandwidth": 1, "peak": 1, "launch": 1e-6},
            **fields}  # fmt: skip


def tables(content: Any) -> list[Table]:
    return [part for part in content if isinstance(part, Table)]


def test_gpu_tables_come_from_records() -> None:
    step = record(step=50e-6, hidden=[128], batch=1024, samples=[2000])
    claims, table = tables(full_batch.show_steps({"products-sim, 128": step}))
    assert claims.rows == [
        ("products-sim on a GPU: a step of hidden 128", "50 µs", "at most 60 µs", "yes")
    ]
    assert table.rows == [("products-sim", "128", "1,024", "2,000", "50", "10", "10", "5")]
    ours: dict[str, Any] = {"curve": [[0.1, 0.5], [0.4, 0.9]], "whole": 1.0, "test_micro_f1": 0.8}
    ours |= {"chosen": "sampled", "hidden": [256]}
    records = {"g, peer 0": {"curve": [[2.0, 0.85]]}, "g, default 0": ours}
    peers, own = tables(full_batch.show_curves(["g"], records))
    assert peers.rows == [("g", "hidden 128, dropout 0.2", "0.8500", "2.00", "0.40")]
    assert own.rows[0][:5] == ("g", "0", "0.9000", "0.40", "1.00")


def test_a_gpu_is_asked_for_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setattr("benchmarks.full_batch.torch", SimpleNamespace(cuda=gone))
    with pytest.raises(fastgcn.FastGCNError, match="there is none here"):
        full_batch.measure_step(data="digits", hidden=None)
