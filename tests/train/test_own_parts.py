"""Users' own parts: a sampler that `check_sampler` certifies, and callbacks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import fastgcn
from fastgcn import Adjacency, Block, FastGCNError, fit, resume
from fastgcn.report import run_report
from fastgcn.sampling.check import check_sampler, tiny_graphs
from fastgcn.sampling.draws import Rng
from tests.cli_runner import run_cli
from tests.communities import communities, quick, weights_of, without_times

GRAPH = communities()
CONFIG = quick(epochs=6)


class HalfOfAll:
    """Each vertex is drawn with probability one half, by a coin for each; plain torch."""

    def __init__(self, adjacency: Adjacency, layers: int = 1) -> None:
        self.matrix = torch.from_numpy(adjacency.to_scipy().toarray())
        self.layers = layers

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        blocks: list[Block] = []
        for _ in range(self.layers):
            drawn = torch.rand(len(self.matrix), generator=self._generator(rng)) < 0.5
            src = drawn.nonzero().view(-1)
            blocks.insert(0, Block(dst=batch, src=src, adj=2 * self.matrix[batch][:, src]))
            batch = src
        return blocks

    def _generator(self, rng: Any) -> Generator:
        """`check_sampler` hands over numpy's generators too."""
        if isinstance(rng, Generator):
            return rng
        return Generator().manual_seed(int(rng.random(1)[0] * 2**53))


def test_it_passes_check_sampler() -> None:
    for adjacency in tiny_graphs().values():
        check_sampler(HalfOfAll, adjacency)


def test_it_trains_with_everything_else_unchanged(tmp_path: Path) -> None:
    run = fit(GRAPH, CONFIG, sampler=HalfOfAll, run_dir=tmp_path / "run")
    assert weights_of(run.model) != weights_of(fit(GRAPH, CONFIG).model)
    assert run.metrics["sampler"] == "HalfOfAll"
    assert run.history[-1]["train_loss"] < run.history[0]["train_loss"]
    assert fastgcn.evaluate(run, GRAPH, "val").micro_f1 == run.metrics["val_micro_f1"]
    assert fastgcn.predict(run, GRAPH, [0, 1]).shape == (2, GRAPH.n_classes)
    assert "HalfOfAll" in run_report(run, GRAPH)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_it_trains_a_network_whose_first_layer_is_sampled_too(dropout: float) -> None:
    config = CONFIG.replace(precompute=False, dropout=dropout)
    run = fit(GRAPH, config, sampler=lambda adjacency: HalfOfAll(adjacency, 2))
    assert run.history[-1]["train_loss"] < run.history[0]["train_loss"]


def test_a_resumed_run_ends_as_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastgcn.train.loop._CHECKPOINT_EVERY", 0)

    def interrupt(record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    whole = fit(GRAPH, CONFIG, sampler=HalfOfAll)
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        fit(GRAPH, CONFIG, sampler=HalfOfAll, run_dir=cut, callbacks=[interrupt])
    with pytest.raises(FastGCNError, match="was trained with the sampler HalfOfAll; give it again"):
        resume(cut, GRAPH)
    resumed = resume(cut, GRAPH, sampler=HalfOfAll)
    assert weights_of(resumed.model) == weights_of(whole.model)
    assert [without_times(r) for r in resumed.history] == [without_times(r) for r in whole.history]


def test_a_run_of_the_settings_own_sampler_takes_no_other(tmp_path: Path) -> None:
    def interrupt(_: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(GRAPH, CONFIG, run_dir=tmp_path / "run", callbacks=[interrupt])
    with pytest.raises(FastGCNError, match="resume it without `sampler`"):
        resume(tmp_path / "run", GRAPH, sampler=HalfOfAll)


class Wrong:
    """Gives the blocks it was made with."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks

    def sample(self, batch: Tensor, rng: Rng) -> list[Block]:
        del batch, rng
        return list(self.blocks)


@pytest.mark.parametrize(
    ("changes", "layers", "message"),
    [
        ({}, 2, "must give a block for each of the 1 sampled layers, got 2"),
        ({"skip": True}, 1, "src must begin with dst"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(
    changes: dict[str, Any], layers: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(FastGCNError, match=message):
        fit(
            GRAPH,
            CONFIG.replace(**changes),
            sampler=lambda adjacency: HalfOfAll(adjacency, layers),
            run_dir=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists(), "a refused run leaves nothing behind"


def test_no_blocks_are_refused() -> None:
    with pytest.raises(FastGCNError, match="at least one block, got none"):
        fit(GRAPH, CONFIG, sampler=lambda _: Wrong([]))


def test_training_starts_from_a_model(tmp_path: Path) -> None:
    first = fit(GRAPH, CONFIG)
    before = weights_of(first.model)
    second = fit(GRAPH, CONFIG, model=first.model, run_dir=tmp_path / "run")
    assert weights_of(first.model) == before, "a copy is trained"
    assert second.history[0]["train_loss"] < first.history[0]["train_loss"]
    assert weights_of(fastgcn.Run.load(tmp_path / "run").model) == weights_of(second.model)


def test_a_model_that_does_not_fit_is_refused() -> None:
    model = fit(GRAPH, CONFIG).model
    with pytest.raises(FastGCNError, match="does not fit the graph and the settings"):
        fit(GRAPH, CONFIG.replace(hidden=5), model=model)


def test_callbacks_see_every_record() -> None:
    seen: list[dict[str, Any]] = []
    run = fit(GRAPH, CONFIG, callbacks=[seen.append, lambda _: None])
    assert seen == run.history


def test_a_callback_ends_the_run_cleanly(tmp_path: Path, capfd: Any) -> None:
    later: list[int] = []
    run = fit(
        GRAPH,
        CONFIG,
        run_dir=tmp_path / "run",
        callbacks=[
            lambda record: record["epoch"] == 2,
            lambda record: later.append(record["epoch"]),
        ],
    )
    assert run.metrics["epochs"] == 2 == len(run.history)
    assert later == [1, 2], "all callbacks see the last epoch too"
    again = fastgcn.Run.load(tmp_path / "run")
    assert weights_of(again.model) == weights_of(run.model)
    np.testing.assert_array_equal(fastgcn.predict(again, GRAPH), fastgcn.predict(run, GRAPH))
    assert run_cli(capfd, "train", "--resume", tmp_path / "run", "--json").code == 0
