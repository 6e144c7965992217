"""What ranks check together: each trains with the others and alone, and compares."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from fastgcn import Graph, TrainConfig
from fastgcn.backends.cpu import CpuBackend
from fastgcn.backends.data import prepare
from fastgcn.backends.ranks.backend import RanksBackend, prepare_shard
from fastgcn.backends.ranks.collectives import LayerTraffic, step_bytes
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.backends.ranks.sampler import ShardBlock
from fastgcn.backends.ranks.shard import Shard
from fastgcn.backends.steps import flat_gradient
from fastgcn.infer.predict import predict
from fastgcn.model import as_gcn
from fastgcn.sampling import Block
from fastgcn.train.training import Training
from tests.communities import communities, quick

NUMBERS = 100 + 7 * np.sin(np.arange(60.0)) ** 3

Case = tuple[dict[str, Any], dict[str, Any]]  # settings, and the graph's

# Draws are the same for these, and so must be losses, gradients and scores.
CASES: dict[str, Case] = {
    "two layers": ({}, {}),
    "one layer": ({"hidden": ()}, {}),
    "one layer, sampled": ({"hidden": (), "precompute": False}, {}),
    "two layers, both sampled": ({"precompute": False}, {}),
    "three layers": ({"hidden": (8, 5), "samples": (25, 15)}, {}),
    "three layers, all sampled": ({"hidden": (8, 5), "precompute": False}, {}),
    "widening": ({"hidden": (2, 9), "samples": 30}, {}),
    "uniform": ({"distribution": "uniform"}, {}),
    "flat, stratified": ({"distribution": "flat", "power": 0.5, "draws": "stratified"}, {}),
    "systematic": ({"draws": "systematic"}, {}),
    "self term exact": ({"self_term": "exact", "hidden": (8, 8)}, {}),
    "skip paths": ({"skip": True, "input_skip": True, "hidden": (8, 8)}, {}),
    "skip paths, all sampled": ({"skip": True, "input_skip": True, "precompute": False}, {}),
    "jumping": ({"jumping": "concat", "hidden": (8, 6)}, {}),
    "jumping to the largest": ({"jumping": "max", "hidden": (8, 8)}, {}),
    "layer norm and bias": ({"norm": "layer", "bias": True}, {}),
    "weight decay": ({"weight_decay": 0.1, "weight_decay_on": "all"}, {}),
    "balanced classes": ({"class_weight": "balanced"}, {}),
    "several labels": ({}, {"multilabel": True}),
    "several labels, balanced": ({"class_weight": "balanced"}, {"multilabel": True}),
    "numbers": ({"loss": "huber"}, {"labels": NUMBERS, "class_names": None}),
    "numbers, transductive": (
        {"inductive": False, "skip": True},
        {"labels": NUMBERS, "class_names": None},
    ),
    "transductive": ({"inductive": False}, {}),
    "directed and weighted": ({}, {"directed": True, "weighted": True}),
    "means of neighbours": ({"normalization": "neighbors", "skip": True}, {}),
    "means with the node": ({"normalization": "row"}, {}),
    "sparse features": ({}, {"sparse": True}),
    "standardised": ({"feature_scaling": "standard"}, {}),
    "standardised, sparse": ({"feature_scaling": "standard"}, {"sparse": True}),
    "rows scaled": ({"feature_scaling": "row"}, {}),
    "joined for evaluation": ({"evaluation_graph": "joined"}, {}),
    "ladies": ({"distribution": "ladies", "draws": "stratified"}, {}),
    "ladies, self term exact": ({"distribution": "ladies", "self_term": "exact"}, {}),
}
FACTS = ("inputs", "gradient", "losses", "scores", "predictions", "bytes")

# Those that three ranks check too.
WITH_THREE = (
    "two layers",
    "one layer",
    "two layers, both sampled",
    "three layers",
    "three layers, all sampled",
    "self term exact",
    "skip paths",
    "transductive",
    "ladies",
)


def compared(shard: Shard, graph: Graph, config: TrainConfig) -> dict[str, float]:
    """By what a run of all ranks differs from that of one process, in each of `FACTS`."""
    alone = Training(config, CpuBackend(graph, config))
    together = Training(config, RanksBackend(shard, config))
    one, many = alone.backend, together.backend
    assert isinstance(one, CpuBackend)
    assert isinstance(many, RanksBackend)
    found = {"inputs": _inputs(shard, graph, config)} | _first_step(shard.group, one, many)
    records = [(together.epoch(), alone.epoch()) for _ in range(2)]
    names = [name for name in records[0][0] if "seconds" not in name]
    ours, theirs = (np.array([[r[i][n] for n in names] for r in records]) for i in (0, 1))
    return found | {"losses": difference(ours, theirs)} | _judged(shard, graph, one, many)


def _first_step(group: ProcessGroup, alone: CpuBackend, together: CpuBackend) -> dict[str, float]:
    """The gradient of the first batch, and the bytes that it took; weights stay as they were."""
    before = deepcopy(together.state())
    batch = alone.data.batch_nodes[: alone.config.batch_size]
    sent = group.host_comm.sent + group.step_comm.sent
    (mine,) = together.minibatches.singly([batch])
    together.step(*mine)
    sent = sum(
        group.host_comm.gather_counts(group.host_comm.sent + group.step_comm.sent - sent, "bytes")
    )
    (prepared,) = alone.minibatches.singly([batch])
    expected = flat_gradient(alone.model, alone.loss, *prepared)
    parts = [p.grad.reshape(-1) for p in together.model.parameters() if p.grad is not None]
    excess = float(abs(sent - _formula(group, together, mine.blocks)))
    together.restore(before, 0)
    alone.learner.rng.set_state(before["rng"])
    return {"gradient": difference(torch.cat(parts).numpy(), expected.numpy()), "bytes": excess}


def _formula(group: ProcessGroup, trainer: CpuBackend, blocks: list[Block]) -> int:
    """What such a step must have sent."""
    sizes, bare = trainer.model.sizes, len(as_gcn(trainer.model).layers) - len(blocks)
    layers = []
    for number, (block, t) in enumerate(zip(blocks, trainer.config.layer_samples, strict=True)):
        assert isinstance(block, ShardBlock)
        layer = as_gcn(trainer.model).convolutions[bare + number]
        width = sizes[bare + number + (not layer.mix_first(block))]
        trained = bare + number > 0 or not layer.mix_first(block)
        above = block.whole[0] if trainer.config.distribution == "ladies" else 0
        layers.append(LayerTraffic(t, sum(block.counts), width, trained, above))
    return step_bytes(group.size, layers, sum(p.numel() for p in trainer.model.parameters()))


def _inputs(shard: Shard, graph: Graph, config: TrainConfig) -> float:
    """Own rows of what the first layer sees: ÂX, or X."""
    whole, (matrix, own) = prepare(graph, config, None), prepare_shard(shard, config)
    first, stop = matrix.bounds[shard.group.rank : shard.group.rank + 2]
    rows = own.rows(torch.arange(stop - first))
    return difference(rows.numpy(), whole.rows(torch.arange(first, stop)).numpy())


def _judged(
    shard: Shard, graph: Graph, alone: CpuBackend, together: CpuBackend
) -> dict[str, float]:
    metrics = [backend.evaluate("test", alone.model, last=True) for backend in (together, alone)]
    ours, theirs = metrics
    assert ours is not None
    assert theirs is not None
    assert ours.n_nodes == theirs.n_nodes
    scores = [np.array(list(each.scores().values())) for each in (ours, theirs)]
    first, stop = shard.bounds[shard.group.rank : shard.group.rank + 2]
    probabilities = predict(alone.model, graph, np.arange(first, stop))
    mine = predict(alone.model, shard)
    return {
        "scores": difference(*scores),
        "predictions": difference(mine, probabilities),
    }


def difference(ours: Any, theirs: Any) -> float:
    """The largest, by the largest number there."""
    assert ours.shape == theirs.shape
    if ours.size == 0:
        return 0.0
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-12))


def largest(group: ProcessGroup, found: dict[str, float]) -> dict[str, float]:
    """Over all ranks."""
    own = torch.tensor([found[name] for name in FACTS], dtype=torch.float64)
    return dict(
        zip(FACTS, group.host_comm.all_reduce(own, "results", torch.maximum).tolist(), strict=True)
    )


def check_cases(group: ProcessGroup, names: Iterable[str]) -> dict[str, dict[str, float]]:
    """The largest differences over ranks, of each case."""
    results = {}
    for name in names:
        settings, fields = CASES[name]
        graph = communities(**fields)
        shard = Shard.of_graph(graph, group)
        results[name] = largest(group, compared(shard, graph, quick(**settings)))
    return results
