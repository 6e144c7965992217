"""What is done with each input: as users do it, without starting a command."""

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow
import torch

import fastgcn
from fastgcn import Graph, TrainConfig, fit, load, predict, save
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.backends.ranks.shard import Shard, normalize_shard
from fastgcn.config import SETTINGS
from fastgcn.data.info import describe
from fastgcn.data.load import import_graph
from fastgcn.data.shards import open_parts, shard
from fastgcn.data.tables.new_rows import read_new_nodes
from fastgcn.files import read_json
from fastgcn.graph.graph import parse_nodes, subgraph
from fastgcn.infer.predict import embed, evaluate
from fastgcn.report import run_report
from fastgcn.settings import read_assignments, read_toml
from fastgcn.train.loop import resume
from fastgcn.train.presets import resolve
from fastgcn.train.run import Run, RunFolder
from tests.fuzz.case import Repair
from tests.fuzz.corpus import agree, graphs, settings, without_sums

Action = Callable[[Path, Random, Path], object]
"""Takes the input's folder, the source of chance, and an empty folder to write into."""


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of input.

    Attributes:
        actions: what may be done with it, and how often.
        repair: makes sums and sizes in a changed input agree again.
        writes: True if an action may write to the input itself.
    """

    actions: dict[Action, float]
    repair: Repair | None = None
    writes: bool = False


@functools.cache
def _known(name: str) -> Graph:
    return graphs()[name]


@functools.cache
def _run(name: str) -> Run:
    return fit(_known(name), settings())


def _finite(values: Any) -> None:
    assert np.isfinite(values).all(), "a prediction is not a finite number"


def _stop(_: dict[str, Any]) -> bool:
    return True


def _source(path: Path) -> Path:
    """What is given to `load`: the folder, or the file of a format that consists of one."""
    file = path / "toy_photo.npz"
    return file if os.path.lexists(file) else path


def _load(path: Path, _: Random, __: Path) -> None:
    load(_source(path))


def _info(path: Path, _: Random, __: Path) -> None:
    describe(load(_source(path)))


def _verify(path: Path, _: Random, __: Path) -> None:
    fastgcn.open_store(path, verify=True)


def _subgraph(path: Path, rng: Random, _: Path) -> None:
    graph = load(path)
    part = subgraph(graph, rng.sample(range(graph.n_nodes), min(graph.n_nodes, 3)))
    describe(part)


def _convert(path: Path, rng: Random, _: Path) -> None:
    graph = load(path)
    rng.choice((graph.to_scipy, graph.to_scipy, graph.to_pyg, graph.to_networkx))()


def _rewrite(path: Path, _: Random, out: Path) -> None:
    save(load(path), out / "copy")


def _shard(path: Path, rng: Random, out: Path) -> None:
    shard(
        load(path), rng.choice((1, 2, 3)), out / "parts", by=rng.choice(("nodes", "edges", "train"))
    )
    describe_parts(out / "parts", 0, 1)


def _train(path: Path, rng: Random, _: Path) -> None:
    graph = load(_source(path), **rng.choice(({}, {"split": "random"})))
    changes: dict[str, Any] = rng.choice(
        (
            {},
            {"precompute": False},
            {"method": "gcn"},
            {"distribution": "ladies"},
            {"inductive": False},
        )
    )
    run = fit(graph, settings(**changes), callbacks=[_stop])
    _finite(predict(run, graph))


def _train_ranks(path: Path, _: Random, __: Path) -> None:
    graph = load(path)
    fit(graph, settings(), shard=Shard.of_graph(graph, _alone()))


def _apply(path: Path, rng: Random, _: Path) -> None:
    """What a trained network says about a damaged graph."""
    graph = load(path)
    run = _run("several" if graph.multilabel else "plain")
    match rng.randrange(4):
        case 0:
            evaluate(run, graph, "test")
        case 1:
            _finite(embed(run, graph))
        case _:
            _finite(predict(run, graph))


def _alone() -> ProcessGroup:
    return ProcessGroup(0, 1, timeout=5.0)


def describe_parts(path: Path, rank: int, processes: int) -> None:
    """Read all that one process reads of its parts before it trains."""
    part = open_parts(path, rank, processes)
    if processes == 1:
        own = Shard.of_part(part, _alone())
        normalize_shard(own, None, "symmetric")
        normalize_shard(own, own.split.train, "symmetric")
        own.own_ids(np.arange(own.n_nodes))
        feature_sums(own)


def feature_sums(own: Shard) -> None:
    features = own.features
    _ = (features @ np.ones(features.shape[1], np.float32)).sum()


def _parts(path: Path, rng: Random, _: Path) -> None:
    describe_parts(path, *rng.choice(((0, 1), (0, 1), (0, 2), (1, 2), (2, 3))))


def _train_parts(path: Path, _: Random, __: Path) -> None:
    own = Shard.of_part(open_parts(path, 0, 1), _alone())
    fit(own.graph, settings(), shard=own, callbacks=[_stop])


def _predict_parts(path: Path, _: Random, __: Path) -> None:
    own = Shard.of_part(open_parts(path, 0, 1), _alone())
    run = _run("several" if own.graph.multilabel else "plain")
    _finite(predict(run, own))


def _load_run(path: Path, *_: object) -> Run:
    if path.name == "plain":  # interrupted: there is no model yet
        folder = RunFolder.open(path)
        repr(folder.config)
        folder.load_checkpoint()
        folder.read_history(2)
    return Run.load(path)


def _verify_run(path: Path, *_: object) -> None:
    RunFolder.open(path).verify()


def _predict_run(path: Path, rng: Random, out: Path) -> None:
    run = _load_run(path, rng, out)
    graph = _known("several" if run.model.multilabel else "named")
    match rng.randrange(3):
        case 0:
            evaluate(run, graph, "test")
        case 1:
            _finite(embed(run, graph))
        case _:
            _finite(predict(run, graph))


def _resume(path: Path, _: Random, __: Path) -> None:
    resume(path, _known(path.name), callbacks=[_stop])


def _report(path: Path, _: Random, __: Path) -> None:
    run = Run.load(path)
    # The pictures' library starts threads, which a forked process does not have.
    svg = '<svg width="9" height="9"><rect/></svg>'
    with patch("vl_convert.vegalite_to_svg", return_value=svg):
        run_report(run, _known("several" if run.model.multilabel else "named"))


def _import(path: Path, rng: Random, out: Path) -> None:
    options: dict[str, Any] = rng.choice(({}, {}, {"split": "random"}, {"directed": True}))
    if "ind.toy.graph" in os.listdir(path):  # noqa: PTH208
        options = rng.choice(({}, {"split": "public"}, {"split": "random", "seed": 2}))
    import_graph(str(_source(path)), None, None, out / "store", **options)
    describe(load(out / "store"))


def _tables(path: Path, rng: Random, out: Path) -> None:
    options: dict[str, Any] = rng.choice(
        (
            {},
            {},
            {},
            {"directed": True},
            {"split": "random"},
            {"label": "size,share"},
            {"features": "size"},
        )
    )
    import_graph(str(path), None, None, out / "store", **options)


def _new_nodes(path: Path, _: Random, __: Path) -> None:
    nodes, edges = (
        next(path.glob(f"{name}.*"), path / f"{name}.csv") for name in ("nodes", "edges")
    )
    graph = _known("named")
    _finite(fastgcn.predict_new(_run("named"), graph, **read_new_nodes(nodes, edges, graph)))


def _toml(path: Path, _: Random, __: Path) -> None:
    resolve(_known("plain"), None, read_toml(path / "settings.toml"))


def _assignments(path: Path, _: Random, __: Path) -> None:
    text = (path / "set.txt").read_bytes().decode(errors="surrogateescape")
    resolve(_known("plain"), None, read_assignments(text.splitlines()))


def _flags(path: Path, *_: object) -> None:
    text = (path / "set.txt").read_bytes().decode(errors="surrogateescape")
    given = {}
    for line in text.splitlines():
        name, __, value = line.partition("=")
        if name in SETTINGS and SETTINGS[name].kind is not bool:  # a switch has no value
            given[name] = SETTINGS[name].parse(value)
    resolve(_known("plain"), None, given)


def _config(path: Path, *_: object) -> None:
    try:
        known = read_json(path / "config.json")
    except (ValueError, OSError):
        return
    if isinstance(known, dict):
        TrainConfig.from_dict(known).complete()


def _node_list(path: Path, _: Random, __: Path) -> None:
    text = (path / "nodes.txt").read_bytes().decode(errors="surrogateescape")
    parse_nodes(_known(path.name), text)


def _command(*args: str) -> Action:
    """The real command; only its exit code tells."""

    def run(path: Path, _: Random, out: Path) -> None:
        from fastgcn.cli import main

        before, sys.argv = (
            sys.argv,
            ["fastgcn", *(a.format(path=_source(path), out=out) for a in args)],
        )
        try:
            main()
        except SystemExit as stop:
            if stop.code not in (0, 1, None):
                raise AssertionError(f"exit code {stop.code}") from stop
        finally:
            sys.argv = before

    run.__name__ = f"fastgcn {args[0]}"
    return run


def _reader() -> Target:
    info = _command("info", "{path}")
    return Target({_load: 55, _info: 35, _import: 8, _train: 1, info: 1})


TARGETS: dict[str, Target] = {
    "store": Target(
        {
            _info: 30,
            _verify: 8,
            _subgraph: 14,
            _convert: 12,
            _rewrite: 5,
            _shard: 6,
            _train: 3,
            _train_ranks: 2,
            _apply: 8,
            _command("info", "{path}"): 2,
        },
        repair=agree,
    ),
    "shards": Target({_parts: 85, _train_parts: 5, _predict_parts: 10}, repair=agree),
    "run": Target(
        {_load_run: 40, _verify_run: 10, _predict_run: 25, _resume: 20, _report: 5},
        repair=without_sums,
        writes=True,
    ),
    "npz": _reader(),
    "gnn-benchmark": _reader(),
    "graphsaint": _reader(),
    "reddit": _reader(),
    "planetoid": _reader(),
    "ogb": _reader(),
    "graphsage": _reader(),
    "csv": Target({_tables: 99, _command("info", "{path}"): 1}),
    "parquet": Target({_tables: 99, _command("info", "{path}"): 1}),
    "new-nodes": Target({_new_nodes: 1}),
    "settings": Target({_toml: 4, _assignments: 3, _flags: 1, _config: 2}),
    "nodes": Target({_node_list: 1}),
    # Requests to the service belong here once there is one.
}


# What the machine is said to have: less than what a worker may allocate.
MEMORY = 1 << 30


def prepare() -> None:
    """One thread everywhere: cases are small, and processes are forked. Memory is bounded."""
    ours = [each for name, each in sys.modules.items() if name.startswith("fastgcn.")]
    for each in ours:
        if hasattr(each, "available_memory"):
            each.available_memory = lambda: MEMORY  # type: ignore[attr-defined]
    torch.set_num_threads(1)
    pyarrow.set_cpu_count(1)
    for module in ("networkx", "torch_geometric.data"):
        import_module(module)
