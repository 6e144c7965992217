"""Validation that is rarer than epochs: when it happens, what it leaves alone, and how rare."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.settings import best_in_paper_budget

import fastgcn.train.loop
from fastgcn import Graph, TrainConfig, evaluate, fit, load, resume
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.backends.evaluator import Sizes, training_work, validation_interval, validation_work
from fastgcn.cli.output import EpochView
from fastgcn.report import run_report
from fastgcn.train.presets import (
    authors_code,
    best_preset,
    graphsage,
    kipf_gcn,
    paper_preset,
)
from fastgcn.train.run import Run
from fastgcn.train.training import Training
from tests.cli_runner import run_cli
from tests.communities import (
    communities,
    few_to_train_on,
    quick,
    weights_of,
    with_only_training,
    without_times,
)

GRAPH = communities()


def validated(run: Run) -> list[int]:
    return [record["epoch"] for record in run.history if "val_micro_f1" in record]


@pytest.mark.parametrize(
    ("every", "epochs", "expected"),
    [(1, 3, [1, 2, 3]), (3, 7, [3, 6, 7]), (3, 6, [3, 6]), (9, 4, [4])],
)
def test_every_so_many_epochs_and_the_last(every: int, epochs: int, expected: list[int]) -> None:
    run = fit(GRAPH, quick(epochs=epochs, validate_every=every))
    assert validated(run) == expected
    assert run.metrics["best_epoch"] in expected
    assert run.metrics["validate_every"] == every
    assert run.config.validate_every == every


@pytest.mark.parametrize("averaging", [0.0, 0.6])
def test_training_is_not_changed_by_it(averaging: float) -> None:
    """Weights are averaged after epochs without validation too."""
    config = quick(epochs=6, averaging=averaging, dropout=0.3)
    often, rarely = fit(GRAPH, config), fit(GRAPH, config.replace(validate_every=4))
    for one, other in zip(often.history, rarely.history, strict=True):
        known = {name: one[name] for name in without_times(other)}
        assert known == without_times(other)
    assert evaluate(rarely, GRAPH, "val").micro_f1 == rarely.metrics["val_micro_f1"]


def test_the_weights_of_a_validated_epoch_are_kept() -> None:
    config = quick(epochs=8, learning_rate=0.3, validate_every=3)
    run, trainer = fit(GRAPH, config), ready(GRAPH, config)
    for epoch in range(run.metrics["best_epoch"]):
        trainer.train_epoch(epoch)
    assert weights_of(run.model) == weights_of(trainer.model)


def test_evaluation_is_charged_at_validations_alone() -> None:
    config = quick(epochs=9, validate_every=4)
    training = Training(config, CpuBackend(GRAPH, config))
    spent = []
    for _ in range(9):
        before = training.seconds["evaluation"]
        training.epoch()
        spent.append(training.seconds["evaluation"] > before)
    assert [number + 1 for number, charged in enumerate(spent) if charged] == [4, 8, 9]


def test_stopping_is_decided_at_validations() -> None:
    run = fit(GRAPH, quick(epochs=200, patience=5, learning_rate=0.3, validate_every=4))
    assert len(run.history) < 200
    assert len(run.history) % 4 == 0
    assert len(run.history) - run.metrics["best_epoch"] == 8  # the first validation after 5


@pytest.mark.parametrize("cut", [1, 3, 4, 7])
def test_a_resumed_run_validates_at_the_same_epochs(
    cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastgcn.train.loop, "_CHECKPOINT_EVERY", 0)
    config = quick(epochs=8, validate_every=3, averaging=0.6, learning_rate=0.05)

    def interrupt(record: dict[str, Any]) -> None:
        if record["epoch"] == cut:
            raise KeyboardInterrupt

    whole = fit(GRAPH, config, run_dir=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(GRAPH, config, run_dir=tmp_path / "cut", callbacks=[interrupt])
    resumed = resume(tmp_path / "cut", GRAPH)
    assert [*map(without_times, resumed.history)] == [*map(without_times, whole.history)]
    assert without_times(resumed.metrics) == without_times(whole.metrics)
    assert weights_of(resumed.model) == weights_of(whole.model)


def test_without_validation_nodes_there_is_nothing_to_say() -> None:
    run = fit(with_only_training(GRAPH), quick(validate_every=2))
    assert validated(run) == []
    assert "validate_every" not in run.metrics
    assert run.metrics["best_epoch"] == 3


@pytest.mark.parametrize("every", [2, 5])
def test_the_report_draws_a_line_through_what_was_validated(every: int) -> None:
    run = fit(GRAPH, quick(epochs=5, validate_every=every))
    page = run_report(run, GRAPH)
    assert f"after every {every} epochs and the last one" in page
    assert ("Validation micro-F1 by epoch" in page) is (every == 2)  # one point is no curve
    first, last = run.history[0], run.history[-1]
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert f"first (1) {first['train_loss']:.4f} – – –" in words
    assert f"last (5) {last['train_loss']:.4f} {last['val_loss']:.4f}" in words


def test_the_view_keeps_the_last_score(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with EpochView(3, tmp_path, show=True) as view:
        view._epochs._next_line = float("inf")  # the last line alone
        for epoch, score in ((1, {}), (2, {"val_micro_f1": 0.25, "val_loss": 1.0}), (3, {})):
            view({"epoch": epoch, "train_loss": 1.0, "seconds_per_batch": 0.001} | score)
    assert "epoch 3: loss 1.0000  val F1 0.2500 (epoch 2)  1.00 ms" in capfd.readouterr().err


def test_the_command_takes_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    outcome = run_cli(
        capfd, "train", "digits", "--epochs", 3, "--set", "validate_every=2", "--run-dir", folder,
        "--json",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["validate_every"] == 2
    assert validated(Run.load(folder)) == [2, 3]


def interval(graph: Graph, config: TrainConfig) -> int:
    return ready(graph, config).validate_every


def test_digits_are_validated_after_every_epoch() -> None:
    digits = load("digits")
    for config in (TrainConfig(), best_preset(digits), paper_preset(digits)):
        assert interval(digits, config.replace(device="cpu")) == 1


@pytest.mark.parametrize("name", ["cora", "pubmed"])
@pytest.mark.parametrize("split", ["full", "public"])
def test_small_graphs_are_validated_after_every_epoch(
    name: str, split: str, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTGCN_DATA", str(real_data))
    graph = load(name, split=split)
    paper = paper_preset(graph).replace(samples=50)
    configs = [paper, paper.replace(inductive=False), authors_code(paper), kipf_gcn()]
    configs += [graphsage("gcn", paper), graphsage("mean", paper), best_preset(graph)]
    if split == "full":
        configs.append(best_in_paper_budget(name))
    assert [interval(graph, config.replace(device="cpu")) for config in configs] == [1] * len(
        configs
    )


def test_where_validation_is_more_work_it_is_rarer() -> None:
    run = fit(few_to_train_on(), quick(hidden=512, samples=10, epochs=4))
    assert run.metrics["validate_every"] == 3
    assert run.config.validate_every == "auto"
    assert validated(run) == [3, 4]
    # 2 layers: 5,000 rows of ÂX by W, and so on; an epoch counts as 2^28 at least.
    assert 5_000 * 300 * 512 < 3 * 2**28 < 2 * 5_000 * 300 * 512


REDDIT = Sizes(
    152_410, 10_034_410, 152_410, 232_965, 23_446_803, 602 * 232_965, 23_699, 2_400_000
)  # fmt: skip


def test_the_paper_network_on_reddit() -> None:
    """The products by hand: all rows of ÂX by W(0), Â's entries by hidden rows, which are fewer
    multiplications than to take W(1) first, and the result by W(1). In training a batch meets
    33 of 400 vertices when counted (results/speed.jsonl), some more by the mean degree."""
    widths = (602, 128, 41)
    by_hand = 232_965 * 602 * 128 + 2_400_000 * 128 + 23_699 * 128 * 41
    assert validation_work(REDDIT, widths) == pytest.approx(by_hand)
    steps = -(-152_410 // 256)
    row = 602 * 128 * 2 + 128 * 41 * 3
    met = (training_work(REDDIT, TrainConfig(), widths) / steps - 2**21) / row
    assert 30 < met < 50
    assert validation_interval(REDDIT, TrainConfig(), widths) == 4


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({"samples": 800}, True),
        ({"samples": 100}, False),
        ({"distribution": "ladies"}, True),  # all that is drawn is met
        ({"neighbors_only": True}, True),
        ({"self_term": "exact"}, True),
        ({"method": "gcn-batched"}, True),
        ({"precompute": False, "samples": (400, 100)}, False),
        ({"batch_size": 16}, True),  # more steps
    ],
)
def test_what_makes_an_epoch_more_work(settings: dict[str, Any], more: bool) -> None:
    config, widths = TrainConfig(), (602, 128, 41)
    work = training_work(REDDIT, config, widths)
    assert (training_work(REDDIT, config.replace(**settings), widths) > work) is more


def test_sparse_features_are_counted_as_they_are_stored() -> None:
    sparse = REDDIT._replace(inputs=232_965)  # one per node, a hundred in a row of ÂX
    assert validation_work(sparse, (602, 128, 41)) < validation_work(REDDIT, (602, 128, 41)) / 4


def test_one_layer_and_graphs_without_edges() -> None:
    alone = Sizes(10, 0, 10, 20, 20, 100, 5, 5)
    for config in (TrainConfig(hidden=()), TrainConfig(), graphsage("mean")):
        widths = (5, *config.hidden_sizes, 3)
        assert validation_interval(alone, config, widths) == 1
    assert validation_work(alone, (5, 3)) == 5 * 5 * 3
