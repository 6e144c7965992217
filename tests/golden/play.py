"""Running a golden case, and summing up what came out of it."""

import contextlib
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
import torch

import fastgcn
from fastgcn import FastGCNError, Graph, Run, TrainConfig
from tests.golden.cases import BASE, CASES, GRAPHS, Case, Settings

Record = dict[str, Any]

_ASKED = 300  # nodes, at most, that are predicted and embedded
_STEP_MB = 10  # between the budgets that are tried


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpoolctl.threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


class Graphs:
    """The graphs of the cases, each made once; their files are under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, Graph] = {}

    def store(self, name: str) -> Path:
        return self.folder / name.replace(" ", "-")

    def __getitem__(self, name: str) -> Graph:
        if name not in self._made:
            self._made[name] = GRAPHS[name](self.store(name))
        return self._made[name]


def resolved(name: str, graphs: Graphs) -> Settings:
    """All settings of a case, as plain data; none where the command chooses them."""
    case = CASES[name]
    if case.how == "command":
        return {}
    start = BASE if case.preset is None else dataclasses.asdict(case.preset(graphs[case.graph]))
    settings = dataclasses.asdict(TrainConfig(**(start | case.changes)))
    return json.loads(json.dumps(settings))  # type: ignore[no-any-return]


def play(name: str, settings: Settings, graphs: Graphs, folder: Path) -> Record:
    """Run a case in the empty `folder`, and sum it up."""
    case = CASES[name]
    graph = graphs[case.graph]
    with _one_thread():
        run = _run(case, settings, graph, graphs, folder)
        return {
            "graph": fastgcn.fingerprint(graph),
            "settings": settings,
            "weights": weights_hash(run),
            "tensors": {key: _statistics(t.numpy()) for key, t in run.model.state_dict().items()},
            "metrics": _without_times(run.metrics),
            "history": [_without_times(record) for record in run.history],
            "outputs": _outputs(run, graph, case.graph),
        }


def weights_hash(run: Run) -> str:
    """SHA-256 over the names, shapes, types and bytes of all weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(run.model.state_dict().items()):
        values = tensor.contiguous()
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}\n".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()


def _without_times(values: Record) -> Record:
    """As JSON would give it back, without what the clock or the place decides."""
    kept = {
        name: _without_times(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if "seconds" not in name and name not in ("run", "device", "sent_bytes")
    }
    return json.loads(json.dumps(kept))  # type: ignore[no-any-return]


def _statistics(values: Any) -> Record:
    """The size of an array, the root of its mean square, and its mean."""
    wide = np.asarray(values, np.float64)
    if not wide.size:
        return {"size": 0, "rms": 0.0, "mean": 0.0}
    return {
        "size": wide.size,
        "rms": float(np.sqrt(np.mean(wide**2))),
        "mean": float(np.mean(wide)),
    }


def _outputs(run: Run, graph: Graph, name: str) -> dict[str, Record]:
    """Predictions and rows by every way there is, as hashes and statistics."""
    nodes = np.arange(graph.n_nodes)[:: max(1, graph.n_nodes // _ASKED)]
    rows = {
        "predict": fastgcn.predict(run, graph, nodes),
        "embed": fastgcn.embed(run, graph, nodes),
        "predict_new": _predict_new(run, graph),
    }
    if run.config.method == "fastgcn" and name not in ("wide", "pubmed"):
        rows["predict sampled"] = fastgcn.predict(run, graph, nodes, samples=50, seed=2)
    scores = fastgcn.evaluate(run, graph, graph.split.test)
    of_classes = {
        name: value
        for name, value in dataclasses.asdict(scores).items()
        if name not in ("r2", "mae", "rmse")
    }
    kept = json.dumps(of_classes, sort_keys=True)
    found = {
        way: {"sha256": hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()}
        | _statistics(values)
        for way, values in rows.items()
    }
    digest = hashlib.sha256(kept.encode()).hexdigest()
    return found | {"evaluate": {"sha256": digest} | _statistics([scores.micro_f1, scores.loss])}


def _predict_new(run: Run, graph: Graph) -> Any:
    """Three new nodes like the first three old ones, joined to a few old ones and each other."""
    n = graph.n_nodes
    features: Any = graph.features
    return fastgcn.predict_new(
        run,
        graph,
        features=features[:3],
        source=[n, n, n + 1, n + 2, n + 1, n + 2],
        target=[4, 9, 1, n, 17, 25],
        default_weight=1,
    )


def _run(case: Case, settings: Settings, graph: Graph, graphs: Graphs, folder: Path) -> Run:
    if case.how == "fit":
        return fastgcn.fit(graph, TrainConfig(**settings))
    if case.how == "resumed":
        return _interrupted(graph, TrainConfig(**settings), folder / "run")
    if case.how == "disk":
        return _on_disk(graph, settings, graphs.store(case.graph), folder / "run")
    if case.how == "ranks":
        flags = [f for key, value in settings.items() for f in _set(key, value)]
        ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        return _command(ranks, graphs.store(case.graph), flags, folder)
    return _command((), case.graph, list(case.command), folder)


class _InterruptedError(Exception):
    pass


def _interrupted(graph: Graph, config: TrainConfig, folder: Path) -> Run:
    """Stopped after the fourth epoch, and resumed behind the third, where its state was saved."""

    def stop(record: Record) -> None:
        if record["epoch"] == 2:
            time.sleep(1.05)  # the state is saved when a second has gone by
        if record["epoch"] == 4:
            raise _InterruptedError

    with contextlib.suppress(_InterruptedError):
        fastgcn.fit(graph, config, run_dir=folder, callbacks=[stop])
    done: list[int] = []
    run = fastgcn.resume(folder, graph, callbacks=[lambda record: done.append(record["epoch"])])
    assert done[0] > 1, "it was not resumed in the middle"
    return run


def _on_disk(graph: Graph, settings: Settings, store: Path, folder: Path) -> Run:
    """With the least memory that is not refused, so that ÂX is on disk."""
    files = _size(store)
    for megabytes in range(100, 20_000, _STEP_MB):
        config = TrainConfig(**(settings | {"memory": f"{megabytes}MB"}))
        try:
            run = fastgcn.fit(graph, config, run_dir=folder)
        except FastGCNError as error:
            if "is not enough" not in str(error):
                raise
        else:
            assert _size(store) + _size(folder) > files + 10_000_000, "ÂX was not on disk"
            return run
    raise AssertionError("no memory was enough")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _set(key: str, value: Any) -> list[str]:
    """A setting as words of the command; None, which TOML does not have, is what it would be."""
    return [] if value is None else ["--set", f"{key}={json.dumps(value)}"]


def _command(launcher: tuple[str, ...], data: object, words: list[str], folder: Path) -> Run:
    """`fastgcn train` in processes of its own, and the run that it leaves."""
    done = subprocess.run(
        [
            sys.executable, *launcher, "-m", "fastgcn", "train", str(data), *words,
            "--run-dir", str(folder / "run"), "--json",
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = Run.load(folder / "run")
    said = json.loads(done.stdout[done.stdout.index("{") :])
    assert _without_times(said) == _without_times(run.metrics)
    return run
