"""Figures of speed on a CUDA device, where absolute times hold."""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.pages import DASH, Claim, Experiment, mean_sd, short
from benchmarks.results import Record
from benchmarks.speed import Effort, Part, Show, figure
from benchmarks.speed_costs import Records
from benchmarks.timing import device_seconds
from fastgcn.backends.gpu.backend import GpuBackend
from fastgcn.backends.gpu.data import upload_edges, upload_rows
from fastgcn.backends.gpu.forward import exact_forward
from fastgcn.backends.gpu.matrix import DeviceMatrix, WholeBlock
from fastgcn.backends.gpu.sampler import DeviceSampler
from fastgcn.backends.gpu.steps import FusedSteps, Recording
from fastgcn.data.load import load
from fastgcn.features.store import NodeFeatures
from fastgcn.kernels.gpu.products import empty_rows
from fastgcn.model import GCN
from fastgcn.report.page import Content, Table
from fastgcn.train.loop import Training, fit
from fastgcn.train.presets import paper_preset

_SIZES = [[256, 400], [512, 800], [1024, 2048], [2048, 4096], [4096, 4096]]
_NEAR = 0.005  # a validation score so far from the best counts as there

Shown = tuple[list[Claim], list[Content]]


def experiments(effort: Effort) -> list[Experiment]:
    """All figures of speed on the device."""
    small, rounds = effort.stand_ins, {"rounds": effort.rounds}
    on_large = {"data": effort.large, **rounds}
    hub = 1_000 if small else 100_000
    sizes = [[64, 50], [128, 100]] if small else _SIZES
    huge = effort.large if small else "products-sim"
    # All epochs of the large graph would take the CPU an hour; a few are as good there.
    epochs = {effort.large: 5} if small else {"pubmed": effort.epochs, effort.large: 5}
    trained = {"data": effort.large, "rounds": 2 * effort.long_rounds - 1}
    hubs = {"nodes": 2 * hub, "degree": 50, "hub": hub, **rounds}
    parts: dict[str, tuple[str, list[Part], Show]] = {
        "step": (
            "A training step",
            [
                Part(f"{b}, {t}", measure_step, {"data": effort.large, "batch_size": b,
                                                 "samples": t, **rounds})
                for b, t in (sizes[:1] if small else sizes[:3:2])
            ],
            show_steps,
        ),
        "hub": ("Hubs", [Part("hub", measure_hub, hubs)], show_hub),
        "epoch": (
            "An epoch", [Part(effort.large, measure_epoch, on_large | {"sizes": sizes})], show_epoch
        ),
        "training": (
            "To the best model", [Part(effort.large, measure_training, trained)], show_training
        ),
        "products": (
            "ÂX and full inference", [Part(effort.large, measure_products, on_large)], show_products
        ),
        "large": (
            "Millions of nodes",
            [Part(huge, measure_large, {"data": huge, "epochs": 5})],
            show_large,
        ),
        "accuracy": (
            "The same scores",
            [
                Part(d, measure_accuracy, {"data": d, "seeds": 2 if small else 5, "epochs": most})
                for d, most in epochs.items()
            ],
            show_accuracy,
        ),
    }  # fmt: skip
    return [figure(name, *each, effort, gpu=True) for name, each in parts.items()]


def bandwidth(rounds: int) -> float:
    """Bytes a second, read and written, of a large copy: the device's own ceiling."""
    size = 1 << 31
    source, target = (torch.empty(size, dtype=torch.int8, device="cuda") for _ in range(2))
    return 2 * size / device_seconds(lambda: target.copy_(source), rounds)


def measure_step(*, data: str, batch_size: int, samples: int, rounds: int) -> Record:
    """Seconds of a step, draws included: K of them in one recording, over K.

    Parts: the recording with draws alone, and the rest. The floor is what the device cannot do
    without: the bytes of the rows, weights and moments at the bandwidth of a large copy, and as
    many dependent kernels as a step has, empty ones.
    """
    device, graph = torch.device("cuda"), load(data)
    config = paper_preset(data).replace(batch_size=batch_size, samples=samples, device="cuda")
    backend = GpuBackend(graph, config, device)
    backend.prepare()
    backend.train_epoch(0)
    batches, steps = backend.training.batches, backend.training.steps
    assert isinstance(steps, FusedSteps)
    batches.shuffle(0)

    def replayed() -> None:
        batches.at.zero_()
        steps.recording.play()

    def drawn() -> None:
        batches.draw()

    whole = device_seconds(replayed, rounds) / batches.count
    drawing = device_seconds(Recording(drawn, device, []).play, rounds) / batches.count
    (blocks,) = batches.sampler.buffers
    met = float(blocks.n_sources.float().mean())
    (width, d), classes = backend.model.convolutions[0].weight.shape, graph.n_classes
    parameters = sum(p.numel() for p in backend.model.parameters())
    small = torch.zeros(1, device=device)

    def empty_kernels() -> None:
        for _ in range(100 * 3):
            small.add_(1.0)

    return {
        "seconds": whole,
        "drawing": drawing,
        "steps": batches.count,
        "met": met,
        "bytes": 4 * (2 * met * width + 2 * 3 * parameters + 4 * met * d),
        "flops": 2 * (2 * met * width * d + 3 * batch_size * d * classes),
        "bandwidth": bandwidth(rounds),
        "launches": device_seconds(Recording(empty_kernels, device, []).play, rounds) / 100,
    }


def show_steps(records: Records) -> Shown:
    bounds = {"256": 50.0, "1024": 100.0}
    claims, rows = [], []
    for name, found in records.items():
        what, bound = f"µs a step, batch and t: {name}", bounds.get(name.split(",")[0], 1e6)
        claims.append(Claim(what=what, value=1e6 * found["seconds"], at_most=bound))
        rows.append(
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
        )
    head = (
        "batch, t", "drawing, µs", "step, µs", "rows met", "MB", "their time, µs", "Mflop",
        "three empty kernels, µs",
    )  # fmt: skip
    return claims, [Table(head, rows, "Where a step's time goes, and what it must move")]


def measure_hub(*, nodes: int, degree: int, hub: int, rounds: int) -> Record:
    """Seconds a batch of draws and blocks, 64 batches of 256 rows with t = 400 together.

    A random graph of `degree` entries a row, in which node 0 has `hub`: batches without it, and
    batches that all have it.
    """
    device = torch.device("cuda")
    rng = torch.Generator(device).manual_seed(0)
    lengths = torch.full((nodes,), degree, device=device)
    lengths[0] = hub
    indptr = torch.zeros(nodes + 1, dtype=torch.int64, device=device)
    indptr[1:] = lengths.cumsum(0)
    count = int(indptr[-1])
    columns = torch.randint(nodes, (count,), device=device, generator=rng, dtype=torch.int32)
    row = torch.repeat_interleave(torch.arange(nodes, device=device), lengths).int()
    values = torch.full((count,), 1 / degree, device=device)
    matrix = DeviceMatrix(indptr, columns, values, row)
    sampler = DeviceSampler(matrix, [400], size=256, count=64, seed=0)
    steps = torch.zeros(1, dtype=torch.int64, device=device)
    plain = torch.randint(1, nodes, (64, 256), device=device, generator=rng, dtype=torch.int32)
    with_hub = plain.clone()
    with_hub[:, 0] = 0

    def seconds(rows: Tensor) -> float:
        def work() -> None:
            sampler.sample(rows, steps)

        return device_seconds(Recording(work, device, []).play, rounds) / len(rows)

    entries = {"plain": 256 * degree, "hub": 255 * degree + hub}
    return {"plain": seconds(plain), "hub": seconds(with_hub), "entries": entries}


def show_hub(records: Records) -> Shown:
    (found,) = records.values()
    entries = found["entries"]
    rows = [
        (name, f"{entries[key]:,}", short(1e6 * found[key]))
        for name, key in (("without", "plain"), ("with the hub in every batch", "hub"))
    ]
    more = (found["hub"] / found["plain"]) / (entries["hub"] / entries["plain"])
    claims = [Claim(what="time an entry, with the hub / without", value=more, at_most=1.1)]
    head = ("batches", "entries looked at", "draws and block, µs a batch")
    return claims, [Table(head, rows, "A hub among the rows of a batch")]


def measure_epoch(*, data: str, sizes: list[list[int]], rounds: int) -> Record:
    """Seconds of an epoch, with and without validation, for pairs of batch size and t.

    `times` and `scores` are the seconds and validation scores of ten epochs by the host's clock.
    """
    device, graph = torch.device("cuda"), load(data)
    found: dict[str, Record] = {}
    for batch_size, samples in sizes:
        config = paper_preset(data).replace(batch_size=batch_size, samples=samples, device="cuda")
        Training(config, GpuBackend(graph, config, device)).epoch()  # compiles
        backend = GpuBackend(graph, config, device)
        training = Training(config, backend)
        times, scores = [], []
        for _ in range(10):
            begin = time.perf_counter()
            scores.append(training.epoch()["val_micro_f1"])
            times.append(time.perf_counter() - begin)

        def epoch(backend: GpuBackend = backend) -> None:
            backend.training.batches.shuffle(0)
            backend.training.steps.run()

        found[f"{batch_size}, {samples}"] = {
            "seconds": device_seconds(epoch, rounds),
            "with_validation": float(np.median(times[1:])),
            "times": times,
            "scores": scores,
        }
    return {"nodes": len(graph.split.train), "sizes": found}


def show_epoch(records: Records) -> Shown:
    """Also how soon each is within 0.5 points of the best score that any of them reached."""
    (found,) = records.values()
    sizes = found["sizes"]
    best = max(max(each["scores"]) for each in sizes.values())
    rows, soon = [], {}
    for name, each in sizes.items():
        first = next((i for i, s in enumerate(each["scores"]) if s >= best - _NEAR), None)
        if first is not None:
            soon[name] = 1e3 * sum(each["times"][: first + 1])
        cells = (1e3 * each["seconds"], 1e3 * each["with_validation"], max(each["scores"]))
        rows.append((name, *map(short, cells), short(soon.get(name))))
    quickest = min(soon, key=lambda name: soon[name])
    epoch = f"ms an epoch of {found['nodes']:,} nodes, the paper's sizes"
    near = f"ms to within 0.5 points of the best, batch and t: {quickest}"
    claims = [
        Claim(what=epoch, value=1e3 * next(iter(sizes.values()))["seconds"], at_most=30),
        Claim(what=near, value=soon[quickest]),
    ]
    head = ("batch, t", "epoch, ms", "with validation, ms", "best validation F1")
    return claims, [Table((*head, "ms to within 0.5 points"), rows, "Epochs by batch size and t")]


def measure_training(*, data: str, rounds: int) -> Record:
    """Seconds from a loaded store to each epoch's end, precompute and validation included.

    The first training of the process compiles kernels, or finds them compiled on disk; it is
    told apart. The others have the seeds 0, 1, ..., and the median is by the time to the best.
    """
    graph, config = load(data), paper_preset(data).replace(device="cuda")
    runs = []
    for seed in (0, *range(rounds)):
        begin = time.perf_counter()
        ends: list[float] = []

        def on_epoch(_: Any, begin: float = begin, ends: list[float] = ends) -> None:
            ends.append(time.perf_counter() - begin)

        run = fit(graph, config.replace(seed=seed), callbacks=[on_epoch])
        scores = [epoch["val_micro_f1"] for epoch in run.history]
        best = run.metrics["best_epoch"] - 1
        near = next(i for i, score in enumerate(scores) if score >= scores[best] - _NEAR)
        runs.append(
            {
                "to_best": ends[best],
                "to_near": ends[near],
                "best_epoch": best + 1,
                "val_micro_f1": scores[best],
                "test_micro_f1": run.metrics["test_micro_f1"],
                "precompute": run.metrics["precompute_seconds"],
                "whole": time.perf_counter() - begin,
            }
        )
    first, *others = runs
    middle = sorted(others, key=lambda each: each["to_best"])[len(others) // 2]
    return {"first": first, "median": middle}


def show_training(records: Records) -> Shown:
    (found,) = records.values()
    median, first = found["median"], found["first"]
    claims = [
        Claim(what="s to the best validation score", value=median["to_best"], at_most=1.5),
        Claim(what="s to within 0.5 points of it", value=median["to_near"], at_most=0.7),
    ]
    rows = []
    for name, each in (("median", median), ("first of the process", first)):
        times = [short(each[part]) for part in ("precompute", "to_near", "to_best", "whole")]
        score = f"{each['test_micro_f1']:.4f}"
        rows.append((name, *times[:3], str(each["best_epoch"]), times[3], score))
    head = (
        "training", "precompute, s", "to within 0.5 points, s", "to the best, s", "best epoch",
        "to the test score, s", "test micro-F1",
    )  # fmt: skip
    return claims, [Table(head, rows, "From a loaded store; the first one compiles")]


def measure_products(*, data: str, rounds: int) -> Record:
    """Seconds of ÂX on the training graph and of the full network over all nodes, X and edges
    on the device.

    Two floors of a sparse product by the bandwidth of a large copy: a row read for each entry,
    and each row read once, which takes a cache that holds them all. The network's: the first
    kind of floor for both its sparse products in the cheaper order, Â(XW), and the times of its
    dense products alone.
    """
    device, graph, config = torch.device("cuda"), load(data), paper_preset(data)
    edges = upload_edges(graph.csr, device)
    x = empty_rows(graph.n_nodes, graph.n_features, torch.float32, device)
    upload_rows(NodeFeatures(graph.features), x)
    train = torch.from_numpy(np.sort(graph.split.train)).to(device)
    trained = edges.induced(train).normalized(config.normalization)
    own = empty_rows(len(train), graph.n_features, torch.float32, device)
    own.copy_(x[train])
    out = torch.empty_like(own)
    model = GCN([graph.n_features, *config.hidden_sizes, graph.n_classes]).to(device)
    whole = WholeBlock.of(edges.normalized(config.normalization))
    w0, w1 = (layer.weight.detach() for layer in model.convolutions)
    hidden = torch.rand((graph.n_nodes, w0.shape[1]), device=device)
    entries, widths = len(whole.matrix.indices), sum(w1.shape)
    return {
        "bandwidth": bandwidth(rounds),
        "propagation": {
            "seconds": device_seconds(lambda: trained.times(own, out), rounds),
            "entries": len(trained.indices),
            "gathered": 4 * len(trained.indices) * (own.shape[1] + 2) + 4 * own.numel(),
            "once": 8 * own.numel() + 8 * len(trained.indices),
        },
        "inference": {
            "seconds": device_seconds(lambda: exact_forward(model, [whole, whole], x), rounds),
            "gemms": device_seconds(lambda: (x @ w0, hidden @ w1), rounds),
            "gathered": 4 * widths * (entries + graph.n_nodes) + 2 * 8 * entries,
            "nodes": graph.n_nodes,
        },
    }


def show_products(records: Records) -> Shown:
    (found,) = records.values()
    speed, mixing, whole = found["bandwidth"], found["propagation"], found["inference"]
    floor, once = mixing["gathered"] / speed, mixing["once"] / speed
    network = whole["gemms"] + whole["gathered"] / speed
    seconds, all_nodes = mixing["seconds"], whole["seconds"]
    predictions = "all nodes' predictions / the same floor and the dense products"
    claims = [
        Claim(what="ÂX / reading a row for each entry", value=seconds / floor, at_most=1.1),
        Claim(what="ÂX / reading every row once", value=seconds / once),
        Claim(what=predictions, value=all_nodes / network, at_most=1.3),
    ]
    rows = [
        ("ÂX", short(1e3 * seconds), short(1e3 * floor), short(1e3 * once)),
        ("all nodes", short(1e3 * all_nodes), short(1e3 * network), DASH),
    ]
    head = ("", "ms", "a row an entry, ms", "each row once, ms")
    caption = f"Products at {speed / 1e12:.2f} TB/s, the rate of a large copy in the same run"
    return claims, [Table(head, rows, caption)]


def measure_large(*, data: str, epochs: int) -> Record:
    """Seconds an epoch, memory of the device, and score, of a graph with millions of nodes."""
    graph = load(data)
    torch.cuda.reset_peak_memory_stats()
    run = fit(graph, paper_preset(data).replace(device="cuda", epochs=epochs))
    return {
        "nodes": graph.n_nodes,
        "entries": len(graph.indices),
        "train": len(graph.split.train),
        "epoch": float(np.median([record["seconds"] for record in run.history[1:]])),
        "memory": torch.cuda.max_memory_allocated(),
        "precompute": run.metrics["precompute_seconds"],
        "test_micro_f1": run.metrics["test_micro_f1"],
    }


def show_large(records: Records) -> Shown:
    claims, rows = [], []
    for name, each in records.items():
        what = f"ms an epoch of {name}, validation included"
        claims.append(Claim(what=what, value=1e3 * each["epoch"]))
        counts = (f"{each[kind]:,}" for kind in ("nodes", "entries", "train"))
        costs = (1e3 * each["epoch"], each["precompute"], each["memory"] / 1e9)
        rows.append((name, *counts, *map(short, costs), f"{each['test_micro_f1']:.4f}"))
    head = (
        "data", "nodes", "stored edges", "training nodes", "epoch, ms", "precompute, s",
        "device memory, GB", "test micro-F1",
    )  # fmt: skip
    return claims, [Table(head, rows, "A graph of millions of nodes")]


def measure_accuracy(*, data: str, seeds: int, epochs: int | None) -> Record:
    """Test micro-F1 with the paper's preset over seeds, on the device and on the CPU."""
    graph, config = load(data), paper_preset(data)
    if epochs is not None:
        config = config.replace(epochs=epochs)
    variants = {
        "cuda": {"device": "cuda"},
        "cuda, float32 products": {"device": "cuda", "products": "float32"},
        "cuda, ÂX in bfloat16": {"device": "cuda", "inputs_dtype": "bfloat16"},
        "cpu": {"device": "cpu"},
    }
    scores = {
        name: [
            fit(graph, config.replace(seed=seed, **changes)).metrics["test_micro_f1"]
            for seed in range(seeds)
        ]
        for name, changes in variants.items()
    }
    return {"scores": scores}


def show_accuracy(records: Records) -> Shown:
    claims, rows = [], []
    for data, found in records.items():
        scores = {name: np.array(values) for name, values in found["scores"].items()}
        here, there = scores["cpu"], scores["cuda"]
        error = np.hypot(*(v.std(ddof=1) / len(v) ** 0.5 for v in (here, there)))
        apart = float(abs(here.mean() - there.mean()) / max(error, 1e-12))
        what = f"{data}: difference of the means, in standard errors"
        claims.append(Claim(what=what, value=apart, at_most=1))
        rows += [(data, name, mean_sd(v, 4), str(len(v))) for name, v in found["scores"].items()]
    head = ("data", "", "test micro-F1", "seeds")
    return claims, [Table(head, rows, "The same network on the device and on the CPU")]
