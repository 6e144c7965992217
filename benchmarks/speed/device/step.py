"""A training step on the device, and an epoch of them."""

import time

import numpy as np
import torch

from benchmarks.results import Record
from benchmarks.speed.device.timing import bandwidth, cuda, device_seconds
from benchmarks.speed.shown import Claim, Shown, short
from fastgcn.backends.gpu.backend import GpuBackend
from fastgcn.backends.gpu.steps import FusedSteps, Replay
from fastgcn.data.load import load
from fastgcn.report.page import Table
from fastgcn.train.loop import Training
from fastgcn.train.presets import paper_preset


def measure_device_step(*, data: str, batch_size: int, samples: int, rounds: int) -> Record:
    """Seconds of a step, draws included: K of them in one recording, over K.

    Parts: the recording with draws alone, and the rest. The floor is what the device cannot do
    without: the bytes of the rows, weights and moments at the bandwidth of a large copy, and as
    many dependent kernels as a step has, empty ones.
    """
    device = cuda()
    graph = load(data)
    config = paper_preset(data).replace(batch_size=batch_size, samples=samples, device="cuda")
    place = GpuBackend(graph, config, device)
    place.prepare()
    place.train_epoch(0)
    group, steps = place.group, place.steps()
    assert isinstance(steps, FusedSteps)
    group.shuffle(0)

    def replayed() -> None:
        group.at.zero_()
        steps.replay.play()

    def drawn() -> None:
        group.draw()

    draws = Replay(drawn, device, [])
    whole = device_seconds(replayed, rounds) / group.count
    drawing = device_seconds(draws.play, rounds) / group.count
    (room,) = group.sampler.rooms
    met = float(room.n_sources.float().mean())
    (width, d), classes = place.model.convolutions[0].weight.shape, graph.n_classes
    parameters = sum(p.numel() for p in place.model.parameters())
    n_bytes = 4 * (2 * met * width + 2 * 3 * parameters + 4 * met * d)
    return {
        "seconds": whole,
        "drawing": drawing,
        "steps": group.count,
        "met": met,
        "bytes": n_bytes,
        "flops": 2 * (2 * met * width * d + 3 * batch_size * d * classes),
        "bandwidth": bandwidth(rounds),
        "kernels": 3,
        "launches": _empty_kernels(device, 3, rounds),
    }


def _empty_kernels(device: torch.device, count: int, rounds: int) -> float:
    """Seconds of so many kernels that do nothing to speak of, one after the other."""
    small = torch.zeros(1, device=device)

    def work() -> None:
        for _ in range(100 * count):
            small.add_(1.0)

    return device_seconds(Replay(work, device, []).play, rounds) / 100


def show_device_steps(records: dict[str, Record]) -> Shown:
    bounds = {"256": 50e-6, "1024": 100e-6}
    claims = [
        Claim(
            what=f"µs a step, batch and t: {name}",
            value=1e6 * found["seconds"],
            at_most=1e6 * bounds.get(name.split(",")[0], 1.0),
        )
        for name, found in records.items()
    ]
    rows = [
        (
            name,
            short(1e6 * found["drawing"]),
            short(1e6 * (found["seconds"] - found["drawing"])),
            short(found["met"]),
            short(found["bytes"] / 1e6),
            short(1e6 * found["bytes"] / found["bandwidth"]),
            short(found["flops"] / 1e6),
            short(1e6 * found["launches"]),
        )
        for name, found in records.items()
    ]
    head = (
        "batch, t", "drawing, µs", "step, µs", "rows met", "MB", "their time, µs", "Mflop",
        "three empty kernels, µs",
    )  # fmt: skip
    return Shown(claims, [Table(head, rows, "Where a step's time goes, and what it must move")])


def measure_device_epoch(*, data: str, sizes: list[list[int]], rounds: int) -> Record:
    """Seconds of an epoch by the host's clock, with and without validation, and how soon a batch
    size gets there.

    For each pair of batch size and t: seconds an epoch, and the seconds of training, validation
    included, from the first step to a validation score within 0.5 points of the best that any
    of them reached within ten epochs.
    """
    device = cuda()
    graph = load(data)
    found: dict[str, Record] = {}
    for batch_size, samples in sizes:
        config = paper_preset(data).replace(batch_size=batch_size, samples=samples, device="cuda")
        times, scores = [], []
        Training(config, GpuBackend(graph, config, device)).epoch()  # compiles
        place = GpuBackend(graph, config, device)
        trainer = Training(config, place)
        for _ in range(10):
            begin = time.perf_counter()
            scores.append(trainer.epoch()["val_micro_f1"])
            times.append(time.perf_counter() - begin)

        def epoch(place: GpuBackend = place) -> None:
            place.group.shuffle(0)
            place.steps().run()

        found[f"{batch_size}, {samples}"] = {
            "seconds": device_seconds(epoch, rounds),
            "with_validation": float(np.median(times[1:])),
            "times": times,
            "scores": scores,
        }
    return {"nodes": len(graph.split.train), "sizes": found}


def show_device_epoch(records: dict[str, Record]) -> Shown:
    (found,) = records.values()
    sizes = found["sizes"]
    best = max(max(each["scores"]) for each in sizes.values())
    rows, soon = [], {}
    for name, each in sizes.items():
        first = next((i for i, s in enumerate(each["scores"]) if s >= best - 0.005), None)
        if first is not None:
            soon[name] = sum(each["times"][: first + 1])
        rows.append(
            (
                name,
                short(1e3 * each["seconds"]),
                short(1e3 * each["with_validation"]),
                short(max(each["scores"])),
                "–" if first is None else short(1e3 * soon[name]),
            )
        )
    paper = next(iter(sizes.values()))
    quickest = min(soon, key=lambda name: soon[name])
    claims = [
        Claim(
            what=f"ms an epoch of {found['nodes']:,} nodes, the paper's sizes",
            value=1e3 * paper["seconds"],
            at_most=30,
        ),
        Claim(
            what=f"ms to within 0.5 points of the best, batch and t: {quickest}",
            value=1e3 * soon[quickest],
        ),
    ]
    head = (
        "batch, t", "epoch, ms", "with validation, ms", "best validation F1",
        "ms to within 0.5 points",
    )  # fmt: skip
    return Shown(claims, [Table(head, rows, "Epochs by batch size and t")])
