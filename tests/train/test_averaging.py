"""Weights averaged over epochs: the means they are said to be, judged, kept and resumed."""

from pathlib import Path

import pytest
import torch

import fastgcn.train.loop
from fastgcn import evaluate, fit, resume
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.train.training import Training
from tests.communities import communities, quick, weights_of, without_times

GRAPH = communities()
CONFIG = quick(epochs=8, averaging=0.6, norm="batch", bias=True, learning_rate=0.05)


def test_means_are_of_the_weights_trained() -> None:
    """β = 0, 1/2, 0.6, 0.6, ...; the weights trained are those without averaging."""
    training, plain = Training(CONFIG, CpuBackend(GRAPH, CONFIG)), ready(GRAPH, CONFIG)
    mean: dict[str, torch.Tensor] = {}
    for epoch, kept in enumerate((0.0, 0.5, 0.6, 0.6)):
        training.epoch()
        plain.train_epoch(epoch)
        assert weights_of(training.backend.model) == weights_of(plain.model)
        for name, now in plain.model.state_dict().items():
            mean[name] = kept * mean.get(name, now) + (1 - kept) * now
        assert training.average is not None
        for name, value in training.average.model.state_dict().items():
            wanted = plain.model.state_dict()[name] if "num_batches" in name else mean[name]
            torch.testing.assert_close(value, wanted)


def test_means_are_judged_and_kept() -> None:
    run = fit(GRAPH, CONFIG)
    assert evaluate(run, GRAPH, "val").micro_f1 == run.metrics["val_micro_f1"]
    assert weights_of(run.model) != weights_of(fit(GRAPH, CONFIG.replace(averaging=0)).model)


def test_a_resumed_run_ends_as_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastgcn.train.loop, "_CHECKPOINT_EVERY", 0)

    def interrupt(record: dict[str, float]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    whole = fit(GRAPH, CONFIG, run_dir=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(GRAPH, CONFIG, run_dir=tmp_path / "cut", callbacks=[interrupt])
    resumed = resume(tmp_path / "cut", GRAPH)
    assert weights_of(resumed.model) == weights_of(whole.model)
    assert [without_times(r) for r in resumed.history] == [without_times(r) for r in whole.history]
