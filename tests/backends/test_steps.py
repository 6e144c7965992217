"""The compiled step moves the weights as autograd and torch's Adam do."""

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from torch import nn

from fastgcn.backends.direct import DirectStep, make_step
from fastgcn.backends.steps import Adam, AutogradStep, CompiledStep, Step
from fastgcn.config import SelfTerm
from fastgcn.features.sparse import SparseMatrix
from fastgcn.graph.adjacency import normalize
from fastgcn.graph.graph import Graph
from fastgcn.model import GCN
from fastgcn.sampling import FullSampler, LayerSampler, Sampler


def groups(model: GCN) -> list[dict[str, object]]:
    """L2 on the first weight alone, as the authors have it."""
    first, *others = model.parameters()
    return [
        {"params": [first], "weight_decay": 0.01},
        {"params": others, "weight_decay": 0.0},
    ]


@pytest.mark.parametrize("sizes", [[9, 3], [9, 12, 3], [9, 5, 14, 3]])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("precomputed", [0, 1])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_agree(
    sizes: list[int], bias: bool, precomputed: int, full: bool, weighted: bool
) -> None:
    rng = np.random.default_rng(0)
    n = 40
    graph = Graph.from_edges(
        rng.integers(0, n, 80), rng.integers(0, n, 80), features=rng.standard_normal((n, 9))
    )
    layers = len(sizes) - 1 - precomputed
    matrix = normalize(graph)
    sampler: Sampler = FullSampler(matrix, layers) if full else LayerSampler(matrix, [15] * layers)
    model = GCN(sizes, bias=bias)
    other = copy.deepcopy(model)
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]) if weighted else None)
    step = make_step(model, loss, Adam(groups(model), 0.01))
    assert isinstance(step, CompiledStep)
    theirs = torch.optim.Adam(groups(other), lr=0.01)
    x, labels = torch.from_numpy(graph.features), torch.from_numpy(rng.integers(0, 3, n))
    draws = torch.Generator().manual_seed(0)
    for _ in range(5):
        batch = torch.randperm(n, generator=draws)[:12]
        blocks = sampler.sample(batch, draws)
        rows = x[blocks[0].src if blocks else batch]
        theirs.zero_grad()
        expected = loss(other(blocks, rows), labels[batch])
        expected.backward()
        theirs.step()
        assert step(blocks, rows, labels[batch]) == pytest.approx(expected.item(), rel=1e-4)
    for ours, reference in zip(model.parameters(), other.parameters(), strict=True):
        assert_allclose(ours.detach(), reference.detach(), rtol=1e-3, atol=1e-5)
        # Adam's step hardly depends on the size of a gradient; its moments do.
        mine, moments = step.optimizer.state_of(ours), theirs.state[reference]
        for name in ("exp_avg", "exp_avg_sq"):
            scale = float(moments[name].abs().max())
            assert_allclose(mine[name], moments[name], rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (GCN([4, 4, 2]), CompiledStep),
        (GCN([4, 4, 2], dropout=0.5), DirectStep),
        (GCN([4, 4, 2], norm="layer"), DirectStep),
        (GCN([4, 4, 2], skip=True), DirectStep),
        (GCN([4, 4, 2], skip=True, input_skip=True), DirectStep),
        (GCN([4, 4, 2], skip=True, input_skip=True, pair=True), DirectStep),
        (GCN([4, 4, 2], jumping="concat"), AutogradStep),
        (GCN([4, 4, 2], norm="batch"), AutogradStep),
    ],
    ids=["plain", "dropout", "norm", "skip", "own", "pair", "jumping", "batch norm"],
)
def test_each_network_has_its_fastest_step(model: GCN, kind: type[Step]) -> None:
    step = make_step(model, nn.CrossEntropyLoss(), Adam(groups(model), 0.01))
    assert type(step) is kind


def test_label_sets_are_not_compiled() -> None:
    model = GCN([4, 4, 2], multilabel=True)
    step = make_step(model, nn.BCEWithLogitsLoss(), Adam(groups(model), 0.01))
    assert isinstance(step, DirectStep)


@pytest.mark.parametrize("sizes", [[9, 12, 3], [9, 4, 3]], ids=["widens", "narrows"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("self_term", ["sampled", "exact"])
def test_steps_taken_together_are_those_taken_one_by_one(
    sizes: list[int], bias: bool, sparse: bool, self_term: SelfTerm
) -> None:
    rng = np.random.default_rng(1)
    n = 40
    features = rng.standard_normal((n, 9)).astype(np.float32)
    features[features < 0.5] = 0
    graph = Graph.from_edges(rng.integers(0, n, 80), rng.integers(0, n, 80), features=features)
    sampler = LayerSampler(normalize(graph), [15], self_term=self_term)
    rows = SparseMatrix.of(csr_array(features)) if sparse else torch.from_numpy(features)
    labels = torch.from_numpy(rng.integers(0, 3, n))
    loss = nn.CrossEntropyLoss()
    together = GCN(sizes, bias=bias, rng=torch.Generator().manual_seed(0))
    apart, by_autograd = copy.deepcopy(together), copy.deepcopy(together)
    steps = [CompiledStep(model, loss, Adam(groups(model), 0.01)) for model in (together, apart)]
    reference = AutogradStep(by_autograd, loss, Adam(groups(by_autograd), 0.01))
    draws = torch.Generator().manual_seed(0)
    for count in (4, 1, 3):
        batches = [torch.randperm(n, generator=draws)[:12] for _ in range(count)]
        (group,) = sampler.sample_groups(batches, draws)
        x = rows.take(group.src.numpy()) if isinstance(rows, SparseMatrix) else rows[group.src]
        known = labels[torch.cat(batches)]
        losses = steps[0].many(group, x, known)
        assert losses == [steps[1](*each) for each in group.each(x, known)]
        assert_allclose(losses, reference.many(group, x, known), rtol=1e-4)
    for ours, same, near in zip(
        *(model.parameters() for model in (together, apart, by_autograd)), strict=True
    ):
        assert torch.equal(ours, same)
        assert_allclose(ours.detach(), near.detach(), rtol=1e-3, atol=1e-5)
