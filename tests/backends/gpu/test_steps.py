"""How steps are recorded, and which of them a network and a device have."""

import gc
import weakref
from typing import Any

import pytest
import torch

from fastgcn.backends.gpu import sampler
from fastgcn.backends.gpu import steps as all_steps
from fastgcn.backends.gpu.backend import GpuBackend
from fastgcn.backends.gpu.recording import DeviceParameters, try_out
from fastgcn.backends.gpu.steps import AutogradSteps, FusedSteps, can_fuse
from fastgcn.kernels.gpu.step import OutOfResources
from fastgcn.model import as_gcn
from tests.backends.gpu.on_device import SETTINGS, place, training
from tests.communities import communities

OWN: dict[str, Any] = {
    "distribution": "ladies", "draws": "stratified", "self_term": "exact",
    "skip": True, "input_skip": True,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"bias": True},
        {**OWN, "bias": True, "norm": "layer", "dropout": (0.2, 0.5), "weight_decay": 0.01},
        {**OWN, "weight_decay_on": "all", "weight_decay": 0.01, "class_weight": "balanced"},
        {**OWN, "skip": False, "dropout": (0.5, 0.0), "norm": "layer"},
        {**OWN, "pair": True, "bias": True, "dropout": (0.0, 0.0)},
        {"skip": True, "batch_size": 1_000, "inputs_dtype": "bfloat16"},
    ],
)
def test_fused_steps_are_those_of_autograd(changes: dict[str, Any]) -> None:
    """They drop the same entries too."""
    check_same_steps(changes)


def test_batches_that_are_drawn_ahead_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three groups of two batches, the last of which is not full."""
    monkeypatch.setattr(sampler, "_TOGETHER", 2)
    changes = {**OWN, "batch_size": 8, "bias": True, "norm": "layer", "dropout": (0.2, 0.5)}
    check_same_steps(changes, groups=True)


def test_a_batch_without_rows_has_no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels end at once; the batch's own rows, of which there are none, would be sources."""
    monkeypatch.setattr(sampler, "_TOGETHER", 2)
    there = place(training(communities(), SETTINGS.replace(**OWN, batch_size=8)))
    batches = there.training.batches
    batches.shuffle(0)
    batches.order[0, 1] = -1
    (blocks,) = batches.draw().blocks
    assert blocks.n_sources[0] >= 8
    assert blocks.n_sources[1] == 0


def check_same_steps(changes: dict[str, Any], *, groups: bool = False) -> None:
    graph = communities()
    kinds = []
    for kind in (FusedSteps, AutogradSteps):
        there = place(training(graph, SETTINGS.replace(**changes)))
        parameters = DeviceParameters(as_gcn(there.model), there.learner.optimizer)
        data, batches = there.training.data, there.training.batches
        batches.shuffle(0)
        assert (len(batches.order) > 2) == groups
        assert len(batches.drawn) == 1 + groups
        if kind is FusedSteps:
            assert can_fuse(as_gcn(there.model), there.training.loss, batches)
            FusedSteps(as_gcn(there.model), parameters, data, batches, seed=7, tf32=False).run()
        else:
            AutogradSteps(
                as_gcn(there.model),
                there.training.loss,
                parameters,
                data,
                batches,
                seed=7,
                tf32=False,
            ).run()
        kinds.append((there.model.state_dict(), batches.losses.clone(), parameters.steps))
    (fused, losses, steps), (plain, others, count) = kinds
    assert steps == count
    losses, others = (each.view(-1)[:steps] for each in (losses, others))
    torch.testing.assert_close(losses, others, rtol=1e-4, atol=1e-5)
    for name, value in fused.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-3, atol=2e-5)


def test_parameters_that_share_memory_keep_their_numbers() -> None:
    there = place(training(communities(), SETTINGS.replace(bias=True, **OWN)))
    before = {name: value.clone() for name, value in there.model.state_dict().items()}
    parameters = DeviceParameters(as_gcn(there.model), there.learner.optimizer)
    assert all(torch.equal(there.model.state_dict()[name], before[name]) for name in before)
    both = parameters.known(*[getattr(as_gcn(there.model).convolutions[0], w) for w in WEIGHTS])
    assert both is not None
    assert torch.equal(both.weight, torch.cat([before[f"layers.0.{w}"] for w in WEIGHTS]))
    parameters.weight.zero_()
    assert not any(value.any() for value in there.model.parameters())


WEIGHTS = ("weight", "own_weight")


def test_work_that_is_tried_out_changes_nothing() -> None:
    count = torch.zeros(1, dtype=torch.int64)

    def work() -> None:
        count.add_(1)

    try_out(work, [count])
    assert int(count) == 0


@pytest.mark.parametrize("batch_size", [24, 1_000])
def test_a_step_can_be_tried_out_before_it_is_taken(batch_size: int) -> None:
    """One batch an epoch, too: a second try must not look for a second one."""
    there = training(
        communities(), SETTINGS.replace(batch_size=batch_size, precompute=False, dropout=0.1)
    )
    place(there).training.batches.shuffle(0)
    steps = place(there).training.steps
    assert isinstance(steps, AutogradSteps)
    changed = [*steps.parameters.memory, steps.current, steps.batches.steps, steps.losses]
    before = [part.clone() for part in changed]
    try_out(steps.step.play, changed)
    assert all(torch.equal(now, then) for now, then in zip(changed, before, strict=True))


def test_kernels_that_a_device_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def refused(*_: Any, **__: Any) -> None:
        raise OutOfResources(200_000, 99_000, "shared memory")

    monkeypatch.setattr(all_steps, "FusedSteps", refused)
    monkeypatch.setattr(all_steps, "note", said.append)
    there = training(communities(), SETTINGS)
    there.epoch()
    assert isinstance(place(there).training.steps, AutogradSteps)
    assert len(said) == 1
    assert "no room for the kernels" in said[0]


def test_a_network_too_wide_for_one_tile_takes_its_steps_by_autograd() -> None:
    there = training(communities(), SETTINGS.replace(hidden=1_025))
    there.epoch()
    assert isinstance(place(there).training.steps, AutogradSteps)


def test_what_steps_worked_on_is_gone_when_the_test_begins() -> None:
    there = training(communities(), SETTINGS)
    there.epoch()
    kept = place(there)
    used = kept.training
    gone = [weakref.ref(part) for part in (used.batches, used.steps, used.data.dense_inputs)]
    del used
    scores = kept.evaluate("test", last=True)
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
    assert scores is not None
    assert scores.n_nodes == len(kept.graph.split.test)


@pytest.mark.parametrize(("name", "chosen"), [("cuda:1", ["cuda:1"]), ("cuda", []), ("cpu", [])])
def test_kernels_run_on_the_device_that_was_asked_for(
    name: str, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: found.append(str(device)))

    def reached(*_: Any) -> None:
        raise StopIteration

    monkeypatch.setattr("fastgcn.backends.gpu.backend.prepare_on_device", reached)
    with pytest.raises(StopIteration):
        GpuBackend(communities(), SETTINGS, torch.device(name)).prepare()
    assert found == chosen
