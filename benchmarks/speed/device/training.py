"""Whole trainings on the device: how soon the best model is there, and how good it is."""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.results import Record
from benchmarks.speed.device.timing import cuda
from benchmarks.speed.shown import Claim, Shown, short
from fastgcn.data.load import load
from fastgcn.report.page import Table
from fastgcn.train.loop import fit
from fastgcn.train.presets import paper_preset


def measure_device_training(*, data: str, rounds: int) -> Record:
    """Seconds from a loaded store to each epoch's end, precompute and validation included.

    The first training of the process compiles kernels, or finds them compiled on disk; it is
    told apart. The others have the seeds 0, 1, ..., and the median is by the time to the best.
    """
    cuda()
    graph, config = load(data), paper_preset(data).replace(device="cuda")
    runs = []
    for seed in (0, *range(rounds)):
        begin = time.perf_counter()
        ends: list[float] = []

        def on_epoch(
            record: dict[str, Any], begin: float = begin, ends: list[float] = ends
        ) -> None:
            del record
            ends.append(time.perf_counter() - begin)

        run = fit(graph, config.replace(seed=seed), callbacks=[on_epoch])
        scores = [epoch["val_micro_f1"] for epoch in run.history]
        best = run.metrics["best_epoch"] - 1
        near = next(i for i, score in enumerate(scores) if score >= scores[best] - 0.005)
        runs.append(
            {
                "to_best": ends[best],
                "to_near": ends[near],
                "best_epoch": best + 1,
                "near_epoch": near + 1,
                "val_micro_f1": scores[best],
                "test_micro_f1": run.metrics["test_micro_f1"],
                "precompute": run.metrics["precompute_seconds"],
                "whole": time.perf_counter() - begin,
            }
        )
    first, *others = runs
    middle = sorted(others, key=lambda each: each["to_best"])[len(others) // 2]
    return {"first": first, "median": middle}


def show_device_training(records: dict[str, Record]) -> Shown:
    (found,) = records.values()
    median, first = found["median"], found["first"]
    claims = [
        Claim(what="s to the best validation score", value=median["to_best"], at_most=1.5),
        Claim(what="s to within 0.5 points of it", value=median["to_near"], at_most=0.7),
    ]
    rows = [
        (
            name,
            short(each["precompute"]),
            short(each["to_near"]),
            short(each["to_best"]),
            str(each["best_epoch"]),
            short(each["whole"]),
            f"{each['test_micro_f1']:.4f}",
        )
        for name, each in (("median", median), ("first of the process", first))
    ]
    head = (
        "training", "precompute, s", "to within 0.5 points, s", "to the best, s", "best epoch",
        "to the test score, s", "test micro-F1",
    )  # fmt: skip
    return Shown(claims, [Table(head, rows, "From a loaded store; the first one compiles")])


def measure_device_large(*, data: str, epochs: int) -> Record:
    """Seconds an epoch, memory of the device, and score, of a graph with millions of nodes."""
    device = cuda()
    graph = load(data)
    torch.cuda.reset_peak_memory_stats(device)
    run = fit(graph, paper_preset(data).replace(device="cuda", epochs=epochs))
    return {
        "nodes": graph.n_nodes,
        "entries": len(graph.indices),
        "train": len(graph.split.train),
        "epoch": float(np.median([record["seconds"] for record in run.history[1:]])),
        "steps": run.metrics["batches"] // run.metrics["epochs"],
        "memory": torch.cuda.max_memory_allocated(device),
        "precompute": run.metrics["precompute_seconds"],
        "val_micro_f1": run.metrics["val_micro_f1"],
        "test_micro_f1": run.metrics["test_micro_f1"],
    }


def show_device_large(records: dict[str, Record]) -> Shown:
    rows = [
        (
            name,
            f"{each['nodes']:,}",
            f"{each['entries']:,}",
            f"{each['train']:,}",
            short(1e3 * each["epoch"]),
            short(each["precompute"]),
            short(each["memory"] / 1e9),
            f"{each['test_micro_f1']:.4f}",
        )
        for name, each in records.items()
    ]
    claims = [
        Claim(what=f"ms an epoch of {name}, validation included", value=1e3 * each["epoch"])
        for name, each in records.items()
    ]
    head = (
        "data", "nodes", "stored edges", "training nodes", "epoch, ms", "precompute, s",
        "device memory, GB", "test micro-F1",
    )  # fmt: skip
    return Shown(claims, [Table(head, rows, "A graph of millions of nodes")])


def measure_device_accuracy(*, data: str, seeds: int, epochs: int | None) -> Record:
    """Test micro-F1 with the paper's preset over seeds, on the device and on the CPU."""
    cuda()
    graph, config = load(data), paper_preset(data)
    if epochs is not None:
        config = config.replace(epochs=epochs)
    scores = {
        name: [
            fit(graph, config.replace(seed=seed, **changes)).metrics["test_micro_f1"]
            for seed in range(seeds)
        ]
        for name, changes in (
            ("cuda", {"device": "cuda"}),
            ("cuda, float32 products", {"device": "cuda", "products": "float32"}),
            ("cuda, ÂX in bfloat16", {"device": "cuda", "inputs_dtype": "bfloat16"}),
            ("cpu", {"device": "cpu"}),
        )
    }
    return {"scores": scores}


def show_device_accuracy(records: dict[str, Record]) -> Shown:
    rows, claims = [], []
    for data, found in records.items():
        scores = {name: np.array(values) for name, values in found["scores"].items()}
        here, there = scores["cpu"], scores["cuda"]
        error = np.hypot(*(v.std(ddof=1) / len(v) ** 0.5 for v in (here, there)))
        claims.append(
            Claim(
                what=f"{data}: difference of the means, in standard errors",
                value=float(abs(here.mean() - there.mean()) / max(error, 1e-12)),
                at_most=1,
            )
        )
        rows += [
            (data, name, f"{values.mean():.4f} ± {values.std(ddof=1):.4f}", str(len(values)))
            for name, values in scores.items()
        ]
    head = ("data", "", "test micro-F1", "seeds")
    return Shown(claims, [Table(head, rows, "The same network on the device and on the CPU")])
