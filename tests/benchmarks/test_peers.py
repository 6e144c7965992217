"""Peers: their own layers, our stopping rule, settings by validation alone, paired differences."""

import doctest
import json
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.peers import accuracy, duels, networks, paired, search, sparse
from benchmarks.peers.accuracy import (
    OURS,
    Cell,
    Peers,
    Plan,
    key,
    measure_peers,
    task_of,
    use_split,
)
from benchmarks.peers.networks import KINDS, Network, Setting, edges_for, grid
from benchmarks.peers.search import Trainer, Tried, select, train
from benchmarks.results import Results, code_hash
from scipy.sparse import csr_array, random_array

from fastgcn import Graph, TrainConfig, fit, load
from fastgcn.train.automatic import candidates
from fastgcn.train.training import best_epoch, should_stop
from tests.communities import communities

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of PyG's, while it is imported
    from torch_geometric.nn import GCNConv, SAGEConv

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse (CSR|CSC|invariant):UserWarning", "ignore:.*not writable:UserWarning"
)
SMALL = [Setting("GCN", 8, 0.3, 5e-4), Setting("GCN", 4, 0.5, 0.0)]


@pytest.fixture
def small_graph() -> Graph:
    return communities(n=90)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, small_graph: Graph) -> Graph:
    """Few settings and epochs, and one graph for every cell."""
    monkeypatch.setattr(search, "PATIENCE", 4)
    monkeypatch.setattr(search, "EPOCHS", 30)
    monkeypatch.setattr(accuracy, "grid", lambda kind: [Setting(kind, 8, 0.3, 0.0)])
    monkeypatch.setattr(Cell, "load", lambda _: small_graph)
    return small_graph


@pytest.mark.parametrize("module", [networks, paired, duels])
def test_examples(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_pygs_in_every_form(kind: str, small_graph: Graph) -> None:
    task = task_of(small_graph, "cpu")
    network = Network(Setting(kind, 8, 0.5, 0.0), task.x.shape[1], task.n_classes).eval()
    fast, plain = (
        network(task.x, edges_for(kind, task.ends, len(task.x), fast=each))
        for each in (True, False)
    )
    torch.testing.assert_close(fast, plain)
    if kind == "MLP":
        return
    made = {"GCN": GCNConv, "GraphSAGE": SAGEConv}[kind]
    as_documented = [made(task.x.shape[1], 8), made(8, task.n_classes)]
    for layer, own in zip(as_documented, network.layers, strict=True):
        layer.load_state_dict(own.state_dict())
    first, second = as_documented
    torch.testing.assert_close(second(first(task.x, task.ends).relu(), task.ends), plain)


def test_graphsage_is_fused_without_messages(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(small_graph, "cpu")
    trainer = Trainer(task, Setting("GraphSAGE", 8, 0.0, 0.0))
    gradients = []
    for fused in (False, True):
        if fused:
            duels.fuse(trainer)
            for layer in trainer.network.layers:
                monkeypatch.setattr(layer, "message", None)
        loss = trainer.network(task.x, trainer.edges).square().sum()
        gradients.append(torch.autograd.grad(loss, trainer.weights))
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, other, rtol=1e-4, atol=1e-4)


def test_the_stopping_rule_is_ours(monkeypatch: pytest.MonkeyPatch, small_graph: Graph) -> None:
    monkeypatch.setattr(search, "PATIENCE", 4)
    task = task_of(small_graph, "cpu")
    use_split(task, small_graph)
    trainer = Trainer(task, SMALL[0])
    trainer.begin(0)
    scored = []
    plain = torch.nn.functional.cross_entropy

    def watched(logits: torch.Tensor, labels: torch.Tensor, **options: Any) -> torch.Tensor:
        loss = plain(logits, labels, **options)
        if labels is task.val:
            right = (logits.argmax(1) == labels).sum() / (labels >= 0).sum()
            scored.append({"val_micro_f1": float(right), "val_loss": float(loss)})
        return loss

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", watched)
    while not trainer.has_stopped():
        trainer.epoch()
    found = trainer.result()
    assert found.epochs == len(scored)
    assert found.best_epoch == best_epoch(scored) + 1
    assert found.val_micro_f1 == pytest.approx(scored[best_epoch(scored)]["val_micro_f1"])
    config = TrainConfig(early_stopping="patience", patience=4).complete()
    stops = [should_stop(scored[: i + 1], config) for i in range(len(scored))]
    assert stops == [False] * (len(scored) - 1) + [True]
    kept = trainer.predictions()
    for _ in range(3):  # nothing counts after the end
        trainer.epoch()
    assert trainer.result() == found
    np.testing.assert_array_equal(trainer.predictions(), kept)


@pytest.mark.parametrize("n", [90, 6000])
def test_peers_have_our_budget(n: int) -> None:
    """In full passes, which their epochs are; up to 5,000 nodes ours have less patience."""
    config = candidates(communities(n=n), sampled=False, device="cpu")[0].config
    assert config.epochs == search.EPOCHS
    assert config.patience == search.PATIENCE if n > 5000 else config.patience < search.PATIENCE


def test_a_trainer_begins_again(quick: Graph) -> None:
    task = task_of(quick, "cpu")
    use_split(task, quick)
    trainers = [Trainer(task, each) for each in SMALL]
    first, other, again = (train(trainers, seed) for seed in (0, 1, 0))
    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_features_change_no_number(quick: Graph, kind: str) -> None:
    """PyG's networks have other products for sparse features; here without dropout."""
    task = task_of(quick, "cpu")
    use_split(task, quick)
    settings = [Setting(kind, 8, 0.0, 5e-4), Setting(kind, 4, 0.0, 0.0)]
    plain = [Trainer(task, each) for each in settings]
    features = csr_array(quick.features)
    other, form = sparse.make_trainers(task, features, settings)
    assert form == "eager, sparse features"
    for one, two in zip(plain, other, strict=True):
        one.begin(3)
        two.begin(3)
        losses = []
        for trainer in (one, two):
            trainer.network.train()
            logits = trainer.network(task.x, trainer.edges)
            losses.append((logits[:, 0] - logits[:, 1] * logits[:, 0]).sum())
            torch.autograd.backward(losses[-1])
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-4)
        for first, second in zip(one.weights, two.weights, strict=True):
            torch.testing.assert_close(first.grad, second.grad, rtol=1e-4, atol=1e-4)
    for trained, again in zip(train(plain, 3), train(other, 3), strict=True):
        assert abs(trained.val_micro_f1 - again.val_micro_f1) < 0.1
        assert trained.val_loss == pytest.approx(again.val_loss, abs=0.05)


def test_dropout_of_sparse_features_is_that_of_dense_ones() -> None:
    """A share of the entries is gone, the others are scaled, and the transpose has the same."""
    matrix = sparse.Matrix.of(random_array((60, 50), density=0.3, rng=np.random.default_rng(0)))
    assert matrix.dropped(0.4, training=False) is matrix
    torch.manual_seed(0)
    dropped = matrix.dropped(0.4, training=True)
    before, after = matrix.rows.to_dense(), dropped.rows.to_dense()
    torch.testing.assert_close(after.T, dropped.turned.to_dense())
    kept = after != 0
    torch.testing.assert_close(after[kept], before[kept] / 0.6)
    share = float(kept.sum() / (before != 0).sum())
    assert abs(share - 0.6) < 4 * (0.24 / float((before != 0).sum())) ** 0.5


def test_selection_goes_by_validation_alone() -> None:
    tried = [Tried(SMALL[0], 0.8, 0.5, 1, 5), Tried(SMALL[1], 0.9, 0.7, 1, 5)]
    assert select(tried) == 1
    assert select([*tried, Tried(SMALL[0], 0.9, 0.6, 1, 5)]) == 2
    assert not any("test" in name for name in Tried.__slots__)


def test_no_search_depends_on_test_labels(
    quick: Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert quick.labels is not None
    task = task_of(quick, "cpu")
    use_split(task, quick)
    known = ((task.train >= 0) | (task.val >= 0)).numpy()
    assert set(np.flatnonzero(known)) == {*quick.split.train, *quick.split.val}
    cell = Cell("any", "random", 0, 0)
    monkeypatch.setattr(accuracy, "grid", lambda _: SMALL)
    found = Peers("cpu").search("GCN", cell)
    labels = quick.labels.copy()
    labels[quick.split.test] = (labels[quick.split.test] + 1) % quick.n_classes
    garbled = Graph(quick.indptr, quick.indices, None, quick.features, labels, quick.split)
    monkeypatch.setattr(Cell, "load", lambda _: garbled)
    other = Peers("cpu").search("GCN", cell)
    for name in ("val_micro_f1", "chosen", "tried"):
        assert found[name] == other[name]
    assert found["test_micro_f1"] != other["test_micro_f1"]
    # DGL gets no test labels either.
    duels.write_arrays(quick, tmp_path)
    arrays = {path.stem: np.load(path) for path in tmp_path.iterdir()}
    assert set(arrays) == {
        "indptr", "indices", "features", "train", "train_labels", "val", "val_labels",
    }  # fmt: skip
    assert len(arrays["train_labels"]) == len(quick.split.train)


def test_measuring_goes_on_where_it_stopped(quick: Graph, tmp_path: Path) -> None:  # noqa: ARG001
    path = tmp_path / "peers.jsonl"
    plan = Plan(("any",), splits=2, seeds=1)
    assert measure_peers(path, plan, "cpu", until=0) == 0
    assert measure_peers(path, plan, "cpu", until=1e12) == 2 * len(KINDS)
    assert measure_peers(path, plan, "cpu", until=1e12) == 0
    more = Plan(("any",), splits=2, seeds=2)
    assert measure_peers(path, more, "cpu", until=1e12) == 2 * len(KINDS)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["key"]["seed"] for each in records] == [0] * 6 + [1] * 6
    assert {each["key"]["who"] for each in records} == {*KINDS}


def test_the_first_seed_of_every_split_comes_first() -> None:
    plan = Plan(("cora", "wordnet"), splits=2, seeds=2)
    assert [(data, [*seeds]) for data, seeds in plan.stages()] == [
        (["cora"], [0]), (["wordnet"], [0]), (["cora"], [1]), (["wordnet"], [1]),
    ]  # fmt: skip
    cells = accuracy.our_cells(plan)
    assert len(cells) == len({*cells}) == 2 * (2 + 2 + 2)
    assert [cell.seed for cell in cells] == [0] * 6 + [1] * 6
    assert cells[0].data == "wordnet"


def test_a_cell_has_the_split_that_loading_gives(real_data: Path) -> None:  # noqa: ARG001
    for cell in (Cell("cora", "random", 3, 0), Cell("cora", "public", None, 0)):
        options = {} if cell.split_seed is None else {"seed": cell.split_seed}
        there, here = load("cora", split=cell.split, **options), cell.load()
        for part, nodes in there.split.items():
            np.testing.assert_array_equal(getattr(here.split, part), nodes)


def test_processes_share_the_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: Graph,  # noqa: ARG001
) -> None:
    monkeypatch.setattr(accuracy, "fit_ours", lambda cell: {"seed": cell.seed})
    path, plan = tmp_path / "peers.jsonl", Plan(("any",), splits=1, seeds=3)
    turn = get_context("spawn").Value("i", 1)
    accuracy.measure_ours(path, accuracy.our_cells(plan), 1e12, turn)  # another has the first
    assert [json.loads(line)["value"]["seed"] for line in path.read_text().splitlines()] == [1, 2]
    accuracy.measure_ours(path, accuracy.our_cells(plan), 1e12)
    assert len(Results(path)) == 3
    accuracy.measure_ours(path, accuracy.our_cells(Plan(("any",), 1, 5)), until=0)
    assert len(Results(path)) == 3


def test_ours_is_the_default_on_one_thread(quick: Graph) -> None:
    cell = Cell("any", "random", 0, 1)
    found = accuracy.fit_ours(cell)
    run = fit(quick, seed=1, device="cpu", threads=1)
    assert found["test_micro_f1"] == run.metrics["test_micro_f1"]
    assert found["val_micro_f1"] == run.metrics["val_micro_f1"]


def on_file(
    path: Path, scores: dict[str, list[tuple[float, float]]], fresh: tuple[int, ...] = ()
) -> Results:
    """Results of two splits: (validation, test) scores by who; those of some splits are fresh."""
    of = ("fastgcn.errors",)
    code = {"code": {"of": of, "hash": code_hash(of)}}
    with path.open("w") as file:
        for who, pairs in scores.items():
            for split, (val, test) in enumerate(pairs):
                value = {"val_micro_f1": val, "test_micro_f1": test}
                name = key(who, Cell("cora", "random", split, 0))
                line = {"key": name, "value": value} | (code if split in fresh else {})
                file.write(json.dumps(line) + "\n")
    return Results(path)


def test_stale_and_fresh_runs_are_not_mixed(tmp_path: Path) -> None:
    same = [(0.5, 0.5), (0.6, 0.6)]
    results = on_file(tmp_path / "r.jsonl", dict.fromkeys((OURS, *KINDS), same), fresh=(1,))
    cells = [Cell("cora", "random", split, 0) for split in (0, 1)]
    assert paired.scores(results, cells)[OURS] == {cells[1]: 0.6}


def test_the_table_pairs_runs_and_calls_ties(tmp_path: Path) -> None:
    results = on_file(
        tmp_path / "r.jsonl",
        {
            OURS: [(0.8, 0.90), (0.8, 0.80)],
            "GCN": [(0.7, 0.89), (0.7, 0.81)],
            "GraphSAGE": [(0.6, 0.50), (0.9, 0.60)],  # validation prefers it on the second split
            "MLP": [(0.1, 0.10), (0.1, 0.10)],
        },
    )
    plan = Plan(("cora",), splits=2, seeds=1)
    table = paired.accuracy_table(plan, results, lambda split: split == "random", "")
    assert table is not None
    (row,) = table.rows
    assert row[:6] == ("cora", "85.00", "85.00", "55.00", "10.00", "74.50")
    assert row[6:] == ("+10.50 ± 9.50", "better", "+0.00 ± 1.00", "tie", "2")
    claims = paired.claims(plan, results)
    assert claims is not None
    assert [each[-1] for each in claims.rows] == ["yes", "no"]


def test_a_lead_equal_to_its_bound_is_met(tmp_path: Path) -> None:
    """In binary, 0.597 - 0.600 is less than -0.003."""
    pairs = {who: [(0.5, 0.597 if who == OURS else 0.600)] for who in (OURS, *KINDS)}
    results = on_file(tmp_path / "r.jsonl", pairs)
    claims = paired.claims(Plan(("cora",), splits=1, seeds=1), results)
    assert claims is not None
    assert claims.rows[0][1:] == ("-0.3 points", "at least -0.3 points", "yes")


def test_a_duel_is_judged_at_the_peers_best_score() -> None:
    peer = {"seconds": [10.0, 20.0, 30.0], "val_micro_f1": [0.5, 0.8, 0.7]}
    ours = {"seconds": [1.0, 4.0], "val_micro_f1": [0.5, 0.9], "whole": 9.0, "kept": 0.9}
    slower = {**ours, "seconds": [1.0, 6.0]}
    assert duels.outcome({"peer": peer, "ours": [ours, slower]}) == (0.8, 20.0, 5.0, 9.0)
    never = {**ours, "val_micro_f1": [0.5, 0.6]}
    assert duels.outcome({"peer": peer, "ours": [ours, never]})[2] is None


def test_our_curve_follows_the_race(monkeypatch: pytest.MonkeyPatch, quick: Graph) -> None:
    monkeypatch.setattr(duels, "open_graph", lambda _: quick)
    found = duels.our_curve("any", threads=1)
    assert found["seconds"] == sorted(found["seconds"])
    assert found["val_micro_f1"] == sorted(found["val_micro_f1"])
    assert found["val_micro_f1"][-1] >= round(found["kept"], 5)
    assert found["whole"] >= found["seconds"][-1]
    setting = Setting("GCN", 8, 0.3, 0.0)
    peer = duels.pyg_curve("any", setting, limit=60, threads=1)
    assert peer["stopped"] == "patience"
    assert peer["val_micro_f1"] == sorted(peer["val_micro_f1"])


def test_the_grid_is_that_of_the_comparison() -> None:
    settings = [setting for kind in KINDS for setting in grid(kind)]
    assert len(settings) == len({*settings}) == 36


def test_a_search_begins_again(quick: Graph) -> None:  # noqa: ARG001
    peers = Peers("cpu")
    cell = Cell("any", "random", 0, 0)
    whole, again = peers.search("MLP", cell), peers.search("MLP", cell)
    assert len(peers._trainers) == 1
    other = Peers("cpu").search("MLP", cell)
    for found in (whole, again, other):
        found.pop("seconds")
    assert whole == again == other
