"""Times of steps: every system takes its turn, and the figures describe what was run."""

import dataclasses

import pytest

from benchmarks.paper import scale, step_times
from fastgcn.backends.cpu import CpuBackend


def test_systems_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    smoke = scale.smoke()
    data = dataclasses.replace(smoke.small, name="digits")
    configs = {name: data.config.replace(seed=i) for i, name in enumerate("ab")}
    turns: list[int] = []
    train_on = CpuBackend.train_on

    def watched(self: CpuBackend, batches: object) -> object:
        turns.append(self.config.seed)
        return train_on(self, batches)  # type: ignore[arg-type]

    monkeypatch.setattr(CpuBackend, "train_on", watched)
    measurement = step_times.step_times("time", data, configs, smoke)
    found = measurement.how()
    assert turns[-4:] == [0, 1, 0, 1]
    for result in found.values():
        assert len(result["chunks"]) == smoke.rounds
        assert min(result["chunks"]) <= result["seconds_per_batch"] <= max(result["chunks"])
        assert result["batches_per_chunk"] >= 3
        assert result["batches_per_epoch"] == -(-1078 // 64)
