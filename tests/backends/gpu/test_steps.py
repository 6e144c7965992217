"""How steps are recorded, and which of them a network and a device have."""

import gc
import weakref
from typing import Any

import pytest
import torch

from fastgcn.backends.gpu import steps as all_steps
from fastgcn.backends.gpu.backend import GpuBackend
from fastgcn.backends.gpu.steps import AutogradSteps, DeviceParameters, FusedSteps, try_out
from fastgcn.kernels.gpu.step import OutOfResources
from tests.backends.gpu.on_device import SETTINGS, place, training
from tests.communities import communities


def test_fused_steps_are_those_of_autograd() -> None:
    graph = communities()
    kinds = []
    for kind in (FusedSteps, AutogradSteps):
        there = place(training(graph, SETTINGS.replace(bias=True)))
        parameters = DeviceParameters(there.model, there.learner.optimizer)
        data, batches = there.training.data, there.training.batches
        batches.shuffle(0)
        if kind is FusedSteps:
            FusedSteps(there.model, parameters, data, batches, "ieee").run()
        else:
            AutogradSteps(there.model, there.training.loss, parameters, data, batches).run()
        kinds.append((there.model.state_dict(), batches.losses.clone(), parameters.steps))
    (fused, losses, steps), (plain, others, count) = kinds
    assert steps == count == len(losses.view(-1))
    torch.testing.assert_close(losses, others, rtol=1e-4, atol=1e-5)
    for name, value in fused.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-3, atol=1e-5)


def test_work_is_tried_out_from_the_same_state_each_time() -> None:
    count, seen = torch.zeros(1, dtype=torch.int64), []

    def work() -> None:
        seen.append(int(count))
        count.add_(1)

    try_out(work, [count])
    assert seen == [0, 0]
    assert int(count) == 0


@pytest.mark.parametrize("batch_size", [24, 1_000])
def test_a_step_can_be_tried_out_before_it_is_taken(batch_size: int) -> None:
    """One batch an epoch, too: a second try must not look for a second one."""
    there = training(communities(), SETTINGS.replace(batch_size=batch_size, dropout=0.1))
    place(there).training.batches.shuffle(0)
    steps = place(there).training.steps
    assert isinstance(steps, AutogradSteps)
    changed = [*steps.parameters.memory, steps.current, steps.batches.steps, steps.losses]
    before = [part.clone() for part in changed]
    try_out(steps.step.play, changed)
    assert all(torch.equal(now, then) for now, then in zip(changed, before, strict=True))


@pytest.mark.parametrize("refused", [1, 2])
def test_kernels_that_a_device_has_no_room_for(
    refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    said: list[str] = []

    class Refused(FusedSteps):
        def __init__(self, *given: Any, frugal: bool) -> None:
            asked.append(frugal)
            if len(asked) <= refused:
                raise OutOfResources(200_000, 99_000, "shared memory")
            super().__init__(*given, frugal=frugal)

    monkeypatch.setattr(all_steps, "FusedSteps", Refused)
    monkeypatch.setattr(all_steps, "note", said.append)
    there = training(communities(), SETTINGS)
    there.epoch()
    assert asked == [False, True]
    assert isinstance(place(there).training.steps, FusedSteps if refused == 1 else AutogradSteps)
    assert len(said) == refused - 1
    assert all("no room for the kernels" in line for line in said)


def test_a_network_too_wide_for_one_tile_takes_its_steps_by_autograd() -> None:
    there = training(communities(), SETTINGS.replace(hidden=1_025))
    there.epoch()
    assert isinstance(place(there).training.steps, AutogradSteps)


def test_what_steps_worked_on_is_gone_when_the_test_begins() -> None:
    there = training(communities(), SETTINGS)
    there.epoch()
    kept = place(there)
    used = kept.training
    gone = [weakref.ref(part) for part in (used.batches, used.steps, used.data.inputs)]
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
