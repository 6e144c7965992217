"""The default on a GPU against full batch in plain torch: validation scores by seconds.

`python -m benchmarks.full_batch wordnet reddit-sim products-sim --out FILE` prints a table for
each graph and appends records to FILE. The peer is GraphSAGE (mean of neighbours, own rows, two
layers), trained transductively by Adam with torch's sparse products: as it is usually written,
and with everything that makes it faster without changing it: ÂX precomputed, a CUDA graph, TF32.
Seconds count from the data in the host's memory: uploads, the race, recording and validation.
Compilation does not count, since each training is run once before it is timed.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fastgcn
from fastgcn import Graph
from fastgcn.backends.gpu.backend import GpuBackend
from fastgcn.train.automatic import candidates
from fastgcn.train.training import Training

Curve = list[tuple[float, float, str]]  # seconds, validation F1, what was trained


def load(name: str) -> Graph:
    warnings.filterwarnings("ignore", category=UserWarning)
    graph = fastgcn.load(name)
    return graph if graph.split.train.size else fastgcn.load(name, split="random", seed=0)


class Means(torch.autograd.Function):
    """A sparse matrix times rows; its transpose is at hand, so that a graph can be recorded."""

    @staticmethod
    def forward(ctx: Any, means: Tensor, back: Tensor, h: Tensor) -> Tensor:
        ctx.back = back
        return means @ h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.back @ gradients[0].contiguous()


class Sage(nn.Module):
    """Two layers of GraphSAGE-mean over a sparse matrix of means."""

    def __init__(self, sizes: list[int], dropout: float) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self.mixed = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.own = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairs)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, means: Tensor, x: Tensor, mixed: Tensor | None, back: Tensor | None
    ) -> Tensor:
        if mixed is None:
            h = self.mixed[0](means @ self.drop(x)) + self.own[0](self.drop(x))
        else:
            h = self.mixed[0](self.drop(mixed)) + self.own[0](self.drop(x))
        h = self.drop(torch.relu(h))
        lower: Any = self.mixed[1]
        if back is None:
            around = lower(means @ h)
        else:  # the narrower product first, which the usual layer does not do
            mixed_rows: Any = Means.apply(  # type: ignore[no-untyped-call]
                means, back, h @ lower.weight.T
            )
            around = mixed_rows + lower.bias
        out: Tensor = around + self.own[1](h)
        return out


def peer(graph: Graph, *, fast: bool, hidden: int, dropout: float, epochs: int, seed: int) -> Curve:
    """Validation F1 of full batch after each epoch, until 50 epochs without a better one."""
    device, began, curve = torch.device("cuda"), time.perf_counter(), Curve()
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = fast
    indptr, indices = (torch.from_numpy(np.asarray(a)).to(device) for a in
                       (graph.csr.indptr, graph.csr.indices))  # fmt: skip
    n, degrees = graph.n_nodes, indptr.diff()
    row = torch.repeat_interleave(torch.arange(n, device=device), degrees)
    values = (1 / degrees.clamp(min=1).float())[row]
    kind = torch.int32 if len(indices) < 2**31 else torch.int64
    means = torch.sparse_csr_tensor(indptr.to(kind), indices.to(kind), values, (n, n))
    x = graph.features
    x = torch.from_numpy(x if isinstance(x, np.ndarray) else x.toarray()).float().to(device)
    if isinstance(graph.features, np.ndarray):
        known = x[torch.from_numpy(np.array(graph.split.train)).to(device)]
        x = (x - known.mean(0)) / known.std(0).clamp(min=1e-6)
    labels = torch.from_numpy(np.array(graph.labels, np.int64)).to(device)
    train, val = (
        torch.from_numpy(np.array(part)).to(device) for part in (graph.split.train, graph.split.val)
    )
    model = Sage([graph.n_features, hidden, graph.n_classes], dropout).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4, capturable=fast)
    mixed = means @ x if fast else None
    back = None
    if fast:
        order = torch.sort(indices, stable=True).indices
        counts = torch.bincount(indices, minlength=n)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        columns = row[order].to(kind)
        back = torch.sparse_csr_tensor(starts.to(kind), columns, values[order], (n, n))
    right = torch.zeros((), device=device)

    def step() -> None:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(means, x, mixed, back)[train], labels[train])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    @torch.no_grad()
    def judge() -> None:
        model.eval()
        right.copy_((model(means, x, mixed, back)[val].argmax(1) == labels[val]).float().mean())

    def both() -> None:
        step()
        judge()

    play: Callable[[], None] = both
    if fast:
        saved = {name: value.clone() for name, value in model.state_dict().items()}
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            both()
        torch.cuda.current_stream().wait_stream(aside)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            both()
        model.load_state_dict(saved)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
        play = recorded.replay
    best, at = 0.0, 0
    for epoch in range(epochs):
        play()
        f1 = float(right)
        curve.append((time.perf_counter() - began, f1, "full batch"))
        if f1 > best:
            best, at = f1, epoch
        if epoch - at >= 50:
            break
    torch.backends.cuda.matmul.allow_tf32 = False
    return curve


def default(graph: Graph, seed: int) -> tuple[Curve, dict[str, Any]]:
    """The same of `fit` with nothing said; all candidates of its race count."""
    curve, began = Curve(), time.perf_counter()
    epoch = Training.epoch

    def timed(self: Training) -> dict[str, Any]:
        record = epoch(self)
        config = self.config
        name = "pair" if config.pair else f"{config.norm} norm, L2 {config.weight_decay:g}"
        f1 = record.get("val_micro_f1", 0.0)
        curve.append((time.perf_counter() - began, f1, f"{config.method}: {name}"))
        return record

    Training.epoch = timed  # type: ignore[method-assign]
    try:
        run = fastgcn.fit(graph, seed=seed, device="cuda")
    finally:
        Training.epoch = epoch  # type: ignore[method-assign]
    spent = run.metrics
    kept = {name: round(spent[name], 4) for name in spent if name.endswith("seconds")}
    kept |= {"fit_seconds": round(time.perf_counter() - began, 3), "test": spent["test_micro_f1"]}
    return curve, kept | {"choice": run.metrics.get("choice", {}).get("why")}


def alone(graph: Graph, name: str, config: Any) -> tuple[Curve, dict[str, Any]]:
    """One candidate, without a race, to its end."""
    device, curve, began = torch.device("cuda"), Curve(), time.perf_counter()
    training = Training(config, GpuBackend(graph, config, device))
    prepared = time.perf_counter() - began
    while training.has_more_epochs:
        f1 = training.epoch()["val_micro_f1"]
        curve.append((time.perf_counter() - began, f1, name))
    spent, n = training.seconds, len(training.history)
    last = training.history[-1]["seconds"]
    epochs = sorted(each["seconds"] for each in training.history[2:]) or [last]
    return curve, {
        "prepared": round(prepared, 4),
        "epoch_ms": round(1e3 * epochs[len(epochs) // 2], 3),
        "step_us": round(1e6 * spent["compute"] / max(training.batches, 1), 1),
        "evaluation_ms": round(1e3 * spent["evaluation"] / n, 3),
        "epochs": n,
    }


def step_time(graph: Graph, config: Any, epochs: int = 12) -> float:
    """Microseconds of a training step, by the host's clock: the median epoch over its steps."""
    backend = GpuBackend(graph, config, torch.device("cuda"))
    backend.prepare()
    taken = []
    for epoch in range(epochs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        backend.train_epoch(epoch)
        taken.append((time.perf_counter() - start) / backend.training.batches.n_steps)
    return 1e6 * sorted(taken[2:])[len(taken[2:]) // 2]


def reached(curve: Curve, level: float) -> float | None:
    """The first second at which a score of at least `level` was there."""
    return next((seconds for seconds, f1, _ in curve if f1 >= level), None)


def best_of(curve: Curve) -> tuple[float, float]:
    """The best score, and the second at which it came."""
    seconds, f1, _ = max(curve, key=lambda point: (point[1], -point[0]))
    return f1, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--candidates", action="store_true", help="each candidate alone, too")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    for name in given.graphs:
        measure(load(name), name, given.out, seeds=given.seeds, each=given.candidates)


def measure(graph: Graph, name: str, out: Path, *, seeds: int, each: bool) -> None:
    """Print and keep all figures of a graph."""

    def keep(what: str, curve: Curve, more: dict[str, Any]) -> None:
        f1, seconds = best_of(curve)
        print(f"{name:12} {what:34} best {f1:.4f} at {seconds:7.3f} s  {more}", flush=True)
        step = max(1, len(curve) // 200)
        with out.open("a", encoding="utf-8") as file:
            record = {"graph": name, "what": what, "best": f1, "at": seconds, **more}
            json.dump(record | {"curve": curve[::step]}, file)
            file.write("\n")

    if each:
        for sampled in (True, False):
            for number, (title, config) in enumerate(candidates(graph, sampled=sampled)):
                kind = "sampled" if sampled else "full"
                try:
                    if number == 0:
                        alone(graph, title, config.replace(epochs=3))
                    keep(f"{kind}: {title}", *alone(graph, title, config.replace(device="cuda")))
                    if sampled and config.batch_size == 1024:
                        print(f"{name}: {title}: {step_time(graph, config):.1f} µs a step")
                except (RuntimeError, fastgcn.FastGCNError) as error:
                    print(f"{name}: {kind}: {title}: {type(error).__name__} {error}"[:600])
                torch.cuda.empty_cache()
    levels: list[tuple[float, float]] = []
    for fast in (False, True):
        for hidden, dropout in ((128, 0.2), (256, 0.5)):
            settings: dict[str, Any] = {"fast": fast, "hidden": hidden, "dropout": dropout}
            try:
                peer(graph, **settings, epochs=3, seed=0)
                curve = peer(graph, **settings, epochs=300, seed=0)
            except RuntimeError as error:
                print(f"{name}: {settings}: {error}"[:600])
                continue
            levels.append(best_of(curve))
            keep(f"full batch{', fast' if fast else ''}, {hidden}, {dropout}", curve, {})
            torch.cuda.empty_cache()
    default(graph, 0)
    for seed in range(seeds):
        torch.cuda.empty_cache()
        curve, more = default(graph, seed)
        for level, seconds in levels:
            mine = reached(curve, level)
            shown = "never" if mine is None else f"{mine:.3f} s"
            print(f"{name}: {level:.4f}, which full batch has at {seconds:.3f} s: {shown}")
        keep(f"default, seed {seed}", curve, more)


if __name__ == "__main__":
    main()
