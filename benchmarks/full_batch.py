"""The default on a GPU against full batch in plain torch, and the time of its steps.

The peer is GraphSAGE (mean of neighbours, own rows, two layers), trained transductively by Adam
with torch's sparse products: as it is usually written, and with everything that makes it faster
without changing it: ÂX precomputed, a CUDA graph, TF32. Seconds count from the data in the host's
memory: uploads, the race, recording and validation. Compilation does not count, since each training
is run once before it is timed.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

import fastgcn
from benchmarks.floors import floor_seconds, rates, work
from benchmarks.pages import Claim, Experiment, claims_table, from_records, short
from benchmarks.results import GPU_CODE, Measurement, Record
from fastgcn import Graph
from fastgcn.errors import InputError
from fastgcn.report.page import Content, Table
from fastgcn.train.automatic import candidates
from fastgcn.train.training import Training

Curve = list[tuple[float, float]]  # seconds and validation F1, wherever that is the best so far

PEERS = (
    {"fast": False, "hidden": 128, "dropout": 0.2},
    {"fast": True, "hidden": 128, "dropout": 0.2},
    {"fast": True, "hidden": 256, "dropout": 0.5},
)
EPOCHS, PATIENCE, SEEDS = 300, 50, 2
_CODE = (*GPU_CODE, "fastgcn.train.race", "benchmarks.full_batch")
_HIDDEN = 128  # of the steps, beside the default's own


def check_cuda() -> None:
    """Refuse to measure on a CUDA device where there is none, or no Triton."""
    from fastgcn.backends.gpu import why_no_kernels

    if not torch.cuda.is_available():
        raise InputError("--device cuda measures on a CUDA device, and there is none here")
    if (reason := why_no_kernels()) is not None:
        raise InputError(f"--device cuda measures kernels in Triton, and {reason}")


@cache
def load(name: str) -> Graph:
    """A graph under its own split, or under random split 0 where it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
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


def peer(
    graph: Graph,
    *,
    fast: bool,
    hidden: int,
    dropout: float,
    epochs: int = EPOCHS,
    seed: int = 0,
    device: str = "cuda",
) -> Curve:
    """Validation F1 of full batch over time, until its patience ends."""
    began, curve = time.perf_counter(), Curve()
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
        if f1 > best:
            best, at = f1, epoch
            curve.append((time.perf_counter() - began, f1))
        if epoch - at >= PATIENCE:
            break
    torch.backends.cuda.matmul.allow_tf32 = False
    return curve


def measure_peer(*, data: str, **settings: Any) -> Record:
    check_cuda()
    graph = load(data)
    peer(graph, **settings, epochs=3)
    torch.cuda.empty_cache()
    return {"curve": peer(graph, **settings)}


def default(graph: Graph, **settings: Any) -> Record:
    """The same of `fit` with nothing said; all candidates of its race count."""
    curve, best, began = Curve(), 0.0, time.perf_counter()
    epoch = Training.epoch

    def watched(self: Training) -> dict[str, Any]:
        nonlocal best
        record = epoch(self)
        if (f1 := record.get("val_micro_f1", 0.0)) > best:
            best = f1
            curve.append((time.perf_counter() - began, f1))
        return record

    with patch.object(Training, "epoch", watched):
        run = fastgcn.fit(graph, **settings)
    return {
        "curve": curve,
        "whole": time.perf_counter() - began,
        "test_micro_f1": run.metrics["test_micro_f1"],
        "chosen": "full passes" if run.config.method == "gcn" else "sampled",
        "hidden": list(run.config.hidden_sizes),
    }


def measure_default(*, data: str, seed: int) -> Record:
    check_cuda()
    graph = load(data)
    default(graph, seed=seed, device="cuda")  # which compiles kernels
    torch.cuda.empty_cache()
    return default(graph, seed=seed, device="cuda")


def measure_step(*, data: str, hidden: int | None, epochs: int = 12) -> Record:
    """A sampled step of the default's first candidate by the host's clock, draws included.

    `hidden` takes the place of the candidate's own; the median of some epochs over their steps.
    """
    from fastgcn.backends.gpu.backend import GpuBackend

    check_cuda()
    graph = load(data)
    config = candidates(graph, sampled=True, device="cuda")[0].config
    config = config if hidden is None else config.replace(hidden=hidden)
    backend = GpuBackend(graph, config, torch.device("cuda"))
    backend.prepare()
    taken = []
    for epoch in range(epochs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        backend.train_epoch(epoch)
        taken.append((time.perf_counter() - start) / backend.training.batches.n_steps)
    needed = work(graph, config)
    return {
        "step": float(np.median(taken[2:])),
        "hidden": list(config.hidden_sizes),
        "batch": config.batch_size,
        "samples": list(config.layer_samples),
        "work": needed,
        "rates": rates(graph, needed, "cuda"),
    }


def reached(curve: Iterable[Sequence[float]], level: float) -> float | None:
    """The first second at which a score of at least `level` was there.

    >>> reached([(0.1, 0.5), (0.2, 0.8)], 0.6), reached([(0.1, 0.5)], 0.6)
    (0.2, None)
    """
    return next((seconds for seconds, f1 in curve if f1 >= level), None)


def experiment(graphs: Sequence[str]) -> Experiment:
    """Validation scores over time: full batch, and the default with its race."""
    measurements = {}
    for data in graphs:
        for number, settings in enumerate(PEERS):
            measurements[f"{data}, peer {number}"] = _measurement(
                "full-batch", measure_peer, {"data": data, **settings}, ("benchmarks.full_batch",)
            )
        for seed in range(SEEDS):
            measurements[f"{data}, default {seed}"] = _measurement(
                "full-batch", measure_default, {"data": data, "seed": seed}, _CODE
            )
    shown = partial(show_curves, graphs)
    return from_records("full-batch", "Against full batch", measurements, shown, some=True)


def steps_experiment(graphs: Iterable[str]) -> Experiment:
    """The time of a sampled step beside its floor, with hidden 128 and with the default's own."""
    measurements = {
        f"{data}, {hidden or 'the default'}": _measurement(
            "steps", measure_step, {"data": data, "hidden": hidden}, (*_CODE, "benchmarks.floors")
        )
        for data in graphs
        for hidden in (_HIDDEN, None)
    }
    return from_records("steps", "A step of the default", measurements, show_steps, some=True)


def _measurement(
    figure: str, how: Callable[..., Record], settings: Mapping[str, Any], code: tuple[str, ...]
) -> Measurement:
    key = {"experiment": "speed", "figure": figure, **settings}
    return Measurement(f"{figure}: {settings}", key, partial(how, **settings), code)


def show_curves(graphs: Sequence[str], records: Mapping[str, Record]) -> list[Content | None]:
    """A row for each peer with our seconds to its best score, and one for each of our runs."""
    peers, ours = [], []
    for data in graphs:
        mine = [records.get(f"{data}, default {seed}") for seed in range(SEEDS)]
        for number, settings in enumerate(PEERS):
            found = records.get(f"{data}, peer {number}")
            if found is not None:
                seconds, best = found["curve"][-1]
                to_it = [reached(each["curve"], best) for each in mine if each is not None]
                there = ", ".join("never" if each is None else f"{each:.2f}" for each in to_it)
                name = f"hidden {settings['hidden']}, dropout {settings['dropout']}"
                name += ", fast" if settings["fast"] else ""
                peers.append((data, name, f"{best:.4f}", f"{seconds:.2f}", there or "–"))
        for seed, each in enumerate(mine):
            if each is not None:
                seconds, best = each["curve"][-1]
                cells = (f"{best:.4f}", f"{seconds:.2f}", f"{each['whole']:.2f}")
                widths = " and ".join(map(str, each["hidden"]))
                chosen = f"{each['chosen']}, hidden {widths}"
                ours.append((data, str(seed), *cells, chosen, f"{each['test_micro_f1']:.4f}"))
    head = ("data", "full batch", "best validation F1", "s", "the default's s to it (seeds)")
    own = ("data", "seed", "best validation F1", "s", "whole `fit`, s", "it chose", "test micro-F1")
    return [
        Table(head, peers, "Full batch, and how long the default takes to its score"),
        Table(own, ours, "The default with nothing said, its race included"),
    ]


def show_steps(records: Mapping[str, Record]) -> list[Content | None]:
    """Each step beside its floor, and the bound of 60 µs."""
    rows, claims = [], []
    for name, found in records.items():
        floor = floor_seconds(found["work"], found["rates"])
        launches = found["work"]["launches"] * found["rates"]["launch"]
        data = name.split(",")[0]
        widths = " and ".join(map(str, found["hidden"]))
        sizes = (widths, f"{found['batch']:,}", " and ".join(f"{t:,}" for t in found["samples"]))
        micro = (short(1e6 * each) for each in (found["step"], floor, launches))
        rows.append((data, *sizes, *micro, short(found["step"] / floor)))
        if found["hidden"] == [_HIDDEN]:
            what = f"{data} on a GPU: a step of hidden {_HIDDEN}"
            claims.append(Claim(what=what, value=1e6 * found["step"], at_most=60, unit=" µs"))
    head = ("data", "hidden", "batch", "t", "step, µs", "floor, µs", "of which launches", "ratio")
    caption = "A sampled step by the host's clock, draws included"
    return [claims_table(claims, caption) if claims else None, Table(head, rows, caption)]
