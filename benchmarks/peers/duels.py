"""Figure 2: the validation score over time, ours and a peer's in turns, on two threads.

A duel is ours, the peer, and ours again, each in a process of its own; the clock starts with the
graph in memory. Ours is `fit` with its race: the score at a time is the best of all candidates so
far. The peer has one setting that was chosen before, outside the clock.
"""

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.cases import graph
from benchmarks.pages import DASH, Experiment, line_figure, short
from benchmarks.peers.accuracy import OUR_CODE, task_of, use_split
from benchmarks.peers.networks import KINDS, Setting, grid
from benchmarks.peers.search import RATE, Trainer
from benchmarks.processes import fresh
from benchmarks.results import Measurement, Record, Results
from fastgcn.data.generate import generate
from fastgcn.data.generate_config import config_from
from fastgcn.data.load import load
from fastgcn.data.registry import cache_folder
from fastgcn.data.store import is_store
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.report.page import Content, Table
from fastgcn.report.plots import Series

THREADS = 2
ENVIRONMENT = "FASTGCN_DGL_PYTHON"  # names the Python that has DGL
SAMPLED = ("DGL neighbor", "DGL labor")
PEERS = (*SAMPLED, "DGL full", "PyG GCN", "PyG GraphSAGE")

# Two-hop-sim at a quarter of its size, so that a duel ends in minutes on two cores.
TWO_HOP_NODES = 58_000
DATA = ("pubmed", "wordnet", f"two-hop-sim/{TWO_HOP_NODES}")

# What was tried for DGL before the clock: the best by validation after some seconds is taken.
DGL_TRIED = ((256, 0.003), (256, 0.01))  # hidden, rate
DGL_TRY_SECONDS, LIMIT = 30.0, 150.0
_SAMPLED_PATIENCE, _FULL_PATIENCE = 20, 50  # epochs; ours has the same

CODE = (*OUR_CODE, "benchmarks.peers.search", "benchmarks.peers.dgl_side")


def open_graph(data: str) -> Graph:
    """A data set under random split 0, or a generated preset of so many nodes under its own."""
    preset, _, nodes = data.partition("/")
    if not nodes:
        return graph(data, "random", 0)
    store = cache_folder() / f"{preset}-{nodes}"
    if not is_store(store):
        generate(config_from(preset, nodes=int(nodes)), store)
    return load(str(store))


def our_curve(data: str, threads: int = THREADS) -> Record:
    """Seconds and the best validation score so far, after each epoch of any candidate."""
    import fastgcn
    from fastgcn.train.training import Training

    on = open_graph(data)
    seconds: list[float] = []
    scores: list[float] = []
    plain_epoch, one_at_a_time = Training.epoch, threading.Lock()

    def watched(training: Training) -> dict[str, Any]:
        record = plain_epoch(training)
        if "val_micro_f1" in record:
            with one_at_a_time:  # candidates train on threads of their own
                seconds.append(round(time.perf_counter() - start, 3))
                scores.append(round(max([record["val_micro_f1"], *scores[-1:]]), 5))
        return record

    with patch.object(Training, "epoch", watched):
        start = time.perf_counter()
        run = fastgcn.fit(on, device="cpu", threads=threads)
    whole = time.perf_counter() - start
    kept = run.metrics["val_micro_f1"]
    return {"seconds": seconds, "val_micro_f1": scores, "whole": whole, "kept": kept}


def pyg_curve(data: str, setting: Setting, limit: float, threads: int = THREADS) -> Record:
    """The same for a full-batch network of PyG, until it stops or the limit."""
    import torch

    torch.set_num_threads(threads)
    on = open_graph(data)
    task = task_of(on, "cpu")
    use_split(task, on)
    trainer = Trainer(task, setting)
    if setting.kind == "GraphSAGE":
        fuse(trainer)
    trainer.begin(0)
    seconds: list[float] = []
    scores: list[float] = []
    start = time.perf_counter()
    while not trainer.has_stopped() and (not seconds or seconds[-1] < limit):
        trainer.epoch()
        seconds.append(round(time.perf_counter() - start, 3))
        scores.append(round(trainer.result().val_micro_f1, 5))
    stopped = "patience" if trainer.has_stopped() else "limit"
    return {"seconds": seconds, "val_micro_f1": scores, "stopped": stopped}


def fuse(trainer: Trainer) -> None:
    """Let GraphSAGE multiply by PyG's `EdgeIndex`, which makes no message for each edge.

    PyG has this for `GraphConv`; without it, WordNet's messages take 3 GB.
    """
    from torch_geometric import EdgeIndex
    from torch_geometric.nn import SAGEConv

    class FusedSAGE(SAGEConv):  # type: ignore[misc]
        SUPPORTS_FUSED_EDGE_INDEX = True

        def message_and_aggregate(self, edge_index: EdgeIndex, x: tuple[Any, Any]) -> Any:
            return edge_index.matmul(x[0], reduce="mean", transpose=True)

    for layer in trainer.network.layers:
        layer.__class__ = FusedSAGE


def dgl_curve(folder: Path, method: str, hidden: int, rate: float, limit: float) -> Record:
    """The same of DGL, in its own environment; `folder` has what `write_arrays` wrote."""
    python = os.environ.get(ENVIRONMENT)
    if not python:
        raise InputError(
            f"{ENVIRONMENT} must name the Python that has DGL; make peers-env makes one"
        )
    patience = _FULL_PATIENCE if method == "full" else _SAMPLED_PATIENCE
    script = Path(__file__).with_name("dgl_side.py")
    options = {"method": method, "hidden": hidden, "rate": rate, "limit": limit}
    options |= {"patience": patience, "threads": THREADS}
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, str(script), str(folder), *flags],
        env=clean | {"OMP_NUM_THREADS": str(THREADS), "DGLBACKEND": "pytorch"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise InputError(f"DGL failed: {done.stderr[-500:]}")
    found: Record = json.loads(done.stdout.splitlines()[-1])
    return found


def write_arrays(on: Graph, folder: Path) -> None:
    """The graph for DGL: its rows, dense features, and labels of training and validation nodes."""
    assert on.labels is not None
    features = on.features
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    arrays: dict[str, Any] = {
        "indptr": on.indptr,
        "indices": np.asarray(on.indices, np.int64),
        "features": np.asarray(dense, np.float32),
    }
    for part, nodes in (("train", on.split.train), ("val", on.split.val)):
        arrays |= {part: nodes, f"{part}_labels": on.labels[nodes]}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def dgl_try(data: str, method: str, hidden: int, rate: float) -> Record:
    """DGL for a short time, to choose its setting by validation."""
    with tempfile.TemporaryDirectory() as folder:
        write_arrays(open_graph(data), Path(folder))
        return dgl_curve(Path(folder), method, hidden, rate, DGL_TRY_SECONDS)


def duel(data: str, peer: str, setting: Record, limit: float) -> Record:
    """Ours, the peer, ours again."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        family, name = peer.split(" ", 1)
        if family == "DGL":
            write_arrays(open_graph(data), folder)
            theirs = partial(dgl_curve, folder, name, **setting, limit=limit)
        else:
            theirs = partial(fresh, pyg_curve, data, Setting(**setting), limit)
        first = fresh(our_curve, data)
        found = theirs()
        return {"ours": [first, fresh(our_curve, data)], "peer": found}


def search_seconds(data: str, limit: float) -> Record:
    """Seconds of one setting of each kind of PyG's search, between two of ours.

    The others are as many again, and none is larger than twice this one.
    """
    first = fresh(our_curve, data)
    kinds = {
        kind: fresh(pyg_curve, data, Setting(kind, 128, 0.5, 5e-5), limit)["seconds"][-1]
        for kind in KINDS
    }
    again = fresh(our_curve, data)
    return {"ours": [first["whole"], again["whole"]], "peer": kinds}


def _try(data: str, method: str, hidden: int, rate: float) -> Measurement:
    key = {"experiment": "peers-try", "data": data, "method": method, "hidden": hidden}
    key |= {"rate": rate, "limit": DGL_TRY_SECONDS}
    label = f"DGL {method} on {data}, hidden {hidden}, rate {rate:g}"
    how = partial(dgl_try, data, method, hidden, rate)
    return Measurement(label, key, how, ("benchmarks.peers.dgl_side",))


def _duel(data: str, peer: str, setting: Record) -> Measurement:
    key = {"experiment": "peers-duel", "data": data, "peer": peer, **setting, "limit": LIMIT}
    key |= {"threads": THREADS}
    return Measurement(
        f"ours and {peer} on {data}", key, partial(duel, data, peer, setting, LIMIT), CODE
    )


def _search(data: str) -> Measurement:
    key = {"experiment": "peers-search", "data": data, "limit": LIMIT, "threads": THREADS}
    return Measurement(
        f"ours and PyG's search on {data}", key, partial(search_seconds, data, LIMIT), CODE
    )


def tries(data: str) -> list[Measurement]:
    """What is tried for DGL's samplers, with the neighbour sampler."""
    return [_try(data, "neighbor", hidden, rate) for hidden, rate in DGL_TRIED]


def setting_of(data: str, peer: str, results: Results) -> Record | None:
    """The setting of a peer by validation; None as long as DGL's are not tried."""
    family, name = peer.split(" ", 1)
    if family == "PyG":
        return Setting(name, 128, 0.5, 5e-4 if name == "GCN" else 0.0).to_dict()
    if name == "full":
        return {"hidden": 128, "rate": RATE}
    records = [results.get(each.key) for each in tries(data)]
    best = [max(record["val_micro_f1"]) for record in records if record is not None]
    if len(best) < len(records):
        return None
    hidden, rate = DGL_TRIED[best.index(max(best))]
    return {"hidden": hidden, "rate": rate}


def reached(curve: Record, score: float) -> float | None:
    """Seconds until a score is reached; None if it is not.

    >>> reached({"seconds": [1.0, 2.0], "val_micro_f1": [0.5, 0.7]}, 0.6)
    2.0
    """
    pairs = zip(curve["seconds"], curve["val_micro_f1"], strict=True)
    return next((seconds for seconds, found in pairs if found >= score), None)


def outcome(found: Record) -> tuple[float, float, float | None, float]:
    """The peer's best score, its seconds until then, ours until then, and ours for the whole.

    Ours are means of the two runs; None if one of them does not reach the score.
    """
    theirs, ours = found["peer"], found["ours"]
    score = max(theirs["val_micro_f1"])
    seconds = reached(theirs, score) or 0.0
    times = [reached(each, score) for each in ours]
    known = [each for each in times if each is not None]
    mean = float(np.mean(known)) if len(known) == len(times) else None
    return score, seconds, mean, float(np.mean([each["whole"] for each in ours]))


def _rows(results: Results, data: Sequence[str]) -> Iterator[tuple[str, str, Record]]:
    for each in data:
        for peer in PEERS:
            setting = setting_of(each, peer, results)
            found = None if setting is None else results.get(_duel(each, peer, setting).key)
            if found is not None:
                yield each, peer, found


def duel_table(results: Results, data: Sequence[str]) -> Table | None:
    """A row a duel: the peer's best score, and how soon both reached it."""
    rows = []
    for name, peer, found in _rows(results, data):
        score, theirs, ours, whole = outcome(found)
        ratio = DASH if ours is None else short(ours / theirs)
        kept = float(np.mean([each["kept"] for each in found["ours"]]))
        rows.append(
            (name, peer, f"{score:.4f}", f"{theirs:.1f}", short(ours), ratio, f"{kept:.4f}",
             f"{whole:.1f}", found["peer"]["stopped"])
        )  # fmt: skip
    head = ("data", "peer", "its best score", "its seconds", "ours, seconds to it", "ours / its",
            "score that ours keeps", "ours, seconds in all", "the peer stopped by")  # fmt: skip
    return Table(head, rows, "Validation micro-F1 and seconds, two threads") if rows else None


def pictures(results: Results, data: Sequence[str]) -> list[Content | None]:
    """For each data set the scores over time, ours and every peer's."""
    made: list[Content | None] = []
    for name in data:
        series: list[Series] = []
        for _, peer, found in _rows(results, [name]):
            if not series:
                series.append(_series("fastgcn", found["ours"][0]))
            series.append(_series(peer, found["peer"]))
        about = f"{name}: best validation micro-F1 so far over seconds, two threads"
        made.append(line_figure(series, name, about, "seconds", "validation micro-F1", logs="x"))
    return made


def _series(name: str, curve: Record) -> Series:
    best = np.maximum.accumulate(curve["val_micro_f1"])
    return Series(name, curve["seconds"], best.tolist())


def search_table(results: Results, data: Sequence[str]) -> Table | None:
    """Whole fits beside PyG's search, whose time is one setting of each kind times the number."""
    rows = []
    for name in data:
        if (found := results.get(_search(name).key)) is not None:
            search = sum(len(grid(kind)) * seconds for kind, seconds in found["peer"].items())
            ours = float(np.mean(found["ours"]))
            parts = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in found["peer"].items())
            rows.append((name, f"{ours:.1f}", parts, short(search), short(ours / search)))
    head = ("data", "ours, a whole fit", "one setting of", "36 settings", "ours / PyG's search")
    return Table(head, rows, "Seconds, two threads") if rows else None


def experiments(data: Sequence[str] = DATA) -> list[Experiment]:
    """The duels with pictures, and whole fits beside PyG's search."""

    def plan(results: Results) -> Iterator[Measurement]:
        for name in data:
            for peer in PEERS:
                if peer in SAMPLED:
                    yield from tries(name)
                if (setting := setting_of(name, peer, results)) is not None:
                    yield _duel(name, peer, setting)

    def show(results: Results) -> list[Content | None]:
        return [duel_table(results, data), *pictures(results, data)]

    searched = ("cora", "pubmed", "wordnet")
    return [
        Experiment(name="peers-time", title="Validation score over time", plan=plan, show=show),
        Experiment(
            name="peers-search", title="A whole fit beside PyG's search",
            plan=lambda _: map(_search, searched),
            show=lambda results: [search_table(results, searched)],
        ),
    ]  # fmt: skip
