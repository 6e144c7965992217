"""Minibatches: what is in them, that seeds decide them, shares of processes, and refusals."""

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.utils.data import DistributedSampler
from torch_geometric.data import Data

import fastgcn
from fastgcn import Block, EdgeBlock, FullSampler, Graph, LayerBatch, LayerLoader, LayerSampler
from fastgcn.errors import InputError
from fastgcn.features.store import DenseStore


def make(**fields: Any) -> Graph:
    rng = np.random.default_rng(3)
    source, target = rng.integers(0, 200, (2, 700))
    known = {
        "features": rng.normal(size=(200, 5)).astype(np.float32),
        "labels": rng.integers(0, 3, 200),
        "split": fastgcn.Split(train=np.arange(100), val=np.arange(100, 150)),
    }
    return Graph.from_edges(source, target, **{**known, **fields})


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make()


def same(one: list[LayerBatch], other: list[LayerBatch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(p, q)
        for a, b in zip(one, other, strict=True)
        for p, q in zip(a.tensors(), b.tensors(), strict=True)
    )


def test_a_batch_holds_rows_labels_ids_and_edges_of_its_nodes(graph: Graph) -> None:
    loader = LayerLoader(graph, (40, 30), 32)
    features, labels = np.asarray(graph.features), np.asarray(graph.labels)
    seen = []
    for batch in loader:
        nodes = batch.nodes.numpy()
        seen.append(nodes)
        assert batch.batch_size == len(nodes)
        assert np.array_equal(batch.x.numpy(), features[batch.n_id.numpy()])
        assert batch.y is not None
        assert np.array_equal(batch.y.numpy(), labels[nodes])
        assert [len(ids) for ids in batch.layers] == [
            batch.blocks[0].size[0], batch.blocks[1].size[0], len(nodes),
        ]  # fmt: skip
        for block in batch.blocks:
            edge_index, edge_weight, size = block
            assert edge_index.shape == (2, len(edge_weight))
            assert torch.equal(block.src[: block.n_dst], block.dst)
            assert bool((edge_index.max(1).values < torch.tensor(size)).all())
            h = torch.randn(size[0], 3, requires_grad=True)
            dense = torch.zeros(size[1], size[0]).index_put_(
                (edge_index[1], edge_index[0]), edge_weight, accumulate=True
            )
            assert torch.allclose(block.mix(h), dense @ h, atol=1e-5)
            (slope,) = torch.autograd.grad(block.mix(h).sum(), h)
            assert torch.allclose(slope, dense.sum(0)[:, None].expand(-1, 3), atol=1e-5)
    assert len(seen) == len(loader) == 4
    assert np.array_equal(np.sort(np.concatenate(seen)), graph.split.train)


def test_edges_are_those_of_the_graph(graph: Graph) -> None:
    """An edge (u, v) of a block is an edge of the graph, or a loop of M."""
    matrix = fastgcn.normalize(graph).to_scipy().toarray()
    for batch in LayerLoader(graph, (40, 30), 32):
        for block in batch.blocks:
            u, v = block.edge_index
            assert (matrix[block.dst[v].numpy(), block.src[u].numpy()] > 0).all()


@pytest.mark.parametrize("sampler", ["ladies", "importance", "uniform", "flat", "neighbor", "full"])
def test_seed_and_epoch_decide_batches_and_workers_do_not(graph: Graph, sampler: str) -> None:
    def loader(**options: Any) -> LayerLoader:
        return LayerLoader(graph, (8, 6), 16, sampler=sampler, **options)

    first = loader(num_workers=0)
    epochs = [list(first), list(first)]
    assert not same(*epochs)
    for workers in (1, 3):
        other = loader(num_workers=workers)
        assert same(list(other), epochs[0])
        assert same(list(other), epochs[1])
        other.set_epoch(0)
        assert same(list(other), epochs[0])
    assert not same(list(loader(seed=1)), epochs[0])


def test_own_weights_of_a_row_sum_to_one(graph: Graph) -> None:
    for batch in LayerLoader(graph, (40, 30), 32, weights="self-normalised"):
        for block in batch.blocks:
            sums = torch.zeros(block.n_dst).index_add(0, block.edge_index[1], block.edge_weight)
            assert torch.allclose(sums, torch.ones(block.n_dst), atol=1e-5)


def test_the_order_and_the_last_batch(graph: Graph) -> None:
    plain = LayerLoader(graph, (5,), 30, shuffle=False)
    assert torch.equal(torch.cat([b.nodes for b in plain]), torch.arange(100))
    assert [b.batch_size for b in plain] == [30, 30, 30, 10]
    short = LayerLoader(graph, (5,), 30, drop_last=True)
    assert [b.batch_size for b in short] == [30, 30, 30]
    assert len(short) == 3


@pytest.mark.parametrize("how", ["shards", "DistributedSampler"])
def test_two_ranks_have_disjoint_shares_of_equal_length(graph: Graph, how: str) -> None:
    nodes = np.arange(101)
    positions: Any = range(101)

    def of_rank(rank: int) -> LayerLoader:
        if how == "shards":
            return LayerLoader(graph, (5,), 16, nodes=nodes, rank=rank, world_size=2)
        order: Any = DistributedSampler(
            positions, num_replicas=2, rank=rank, seed=4, drop_last=True
        )
        return LayerLoader(graph, (5,), 16, nodes=nodes, index_sampler=order)

    left_out: set[int] = set()
    for epoch in range(4):
        shares = []
        for rank in (0, 1):
            loader = of_rank(rank)
            loader.set_epoch(epoch)
            shares.append(torch.cat([batch.nodes for batch in loader]).tolist())
            assert len(loader) == 4
        assert [len(share) for share in shares] == [50, 50]
        assert not set(shares[0]) & set(shares[1])
        left_out.add(*(set(nodes.tolist()) - {*shares[0], *shares[1]}))
    assert len(left_out) > 1


def test_shares_that_are_not_shuffled_leave_nobody_out(graph: Graph) -> None:
    shares = [
        [int(v) for b in LayerLoader(
            graph, (5,), 16, nodes=np.arange(101), shuffle=False, rank=r, world_size=2
        ) for v in b.nodes]
        for r in (0, 1)
    ]  # fmt: skip
    assert sorted(shares[0] + shares[1]) == list(range(101))


def test_it_takes_pyg_data_stores_masks_and_own_features(graph: Graph, tmp_path: Path) -> None:
    fastgcn.save(graph, tmp_path / "store")
    mask = torch.zeros(200, dtype=torch.bool)
    mask[:100] = True
    own = DenseStore(np.asarray(graph.features))
    reference = list(LayerLoader(graph, (20, 20), 64))
    for data, options in (
        (graph.to_pyg(), {}),
        (tmp_path / "store", {}),
        (graph, {"nodes": mask}),
        (graph, {"nodes": np.arange(100), "features": own}),
        (graph, {"features": torch.from_numpy(np.asarray(graph.features))}),
    ):
        assert same(list(LayerLoader(data, (20, 20), 64, **options)), reference)


def test_features_that_do_not_fit_stay_on_disk(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastgcn.save(graph, tmp_path / "store")
    small = LayerLoader(tmp_path / "store", (20, 20), 64)
    monkeypatch.setattr("fastgcn.loader.source.available_memory", lambda: 100)
    large = LayerLoader(tmp_path / "store", (20, 20), 64)
    assert [small.features.on_disk, large.features.on_disk] == [False, True]
    assert same(list(small), list(large))


def test_edges_of_a_directed_data_point_as_in_pyg() -> None:
    """0 → 1 → 2: in PyG, node 1 hears of node 0."""
    data = Data(
        x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 0])
    )
    options: dict[str, Any] = {"sampler": "full", "normalization": "none", "nodes": [1]}
    (batch,) = LayerLoader(data, (1,), **options)
    assert batch.blocks[0].mix(batch.x).tolist() == [[1.0, 0.0, 0.0]]


def test_what_is_left_out_is_said(graph: Graph) -> None:
    data = Data(
        x=torch.eye(3), edge_index=torch.tensor([[0, 1, 2], [1, 0, 2]]), y=torch.tensor([0, 1, 0])
    )
    with pytest.warns(UserWarning, match="1 loops and 0 repeated edges are left out"):
        LayerLoader(data, (1,), nodes=[0, 1])
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="pin_memory is not used"):
            LayerLoader(graph, pin_memory=True)


@pytest.mark.parametrize("self_loops", [None, True])
def test_sum_and_none_are_the_same_matrix(graph: Graph, self_loops: bool | None) -> None:
    options: dict[str, Any] = {"sampler": "full", "self_loops": self_loops, "nodes": [0, 1]}
    none, total = (
        next(iter(LayerLoader(graph, (1,), normalization=name, shuffle=False, **options)))
        for name in ("none", "sum")
    )
    assert torch.equal(none.blocks[0].edge_index, total.blocks[0].edge_index)
    assert torch.equal(none.blocks[0].edge_weight, total.blocks[0].edge_weight)


@pytest.mark.parametrize("kind", ["label sets", "numbers", "none"])
def test_labels_of_each_task(kind: str) -> None:
    rng = np.random.default_rng(0)
    labels: Any = {
        "label sets": rng.random((200, 4)) < 0.5,
        "numbers": rng.normal(size=200),
        "none": None,
    }[kind]
    batch = next(iter(LayerLoader(make(labels=labels), (9,), labels=labels is not None)))
    if labels is None:
        assert batch.y is None
    else:
        assert batch.y is not None
        assert batch.y.dtype == torch.float32
        assert np.allclose(batch.y, labels[batch.nodes.numpy()])


def test_a_sampler_of_the_users_own(graph: Graph) -> None:
    adjacency = fastgcn.normalize(graph)
    sampler = LayerSampler(adjacency, (30, 20), distribution="uniform", own_rows=True)
    for batch in LayerLoader(graph, sampler=sampler, normalization="symmetric", num_workers=2):
        assert [block.matrix.normalization for block in batch.blocks] == ["symmetric"] * 2

    class Dense:
        """Blocks that are dense tensors."""

        def sample(self, batch: Tensor, rng: Any) -> list[Block]:  # noqa: ARG002
            rows = torch.from_numpy(adjacency.to_scipy().toarray())[batch]
            return [Block(dst=batch, src=torch.arange(200), adj=rows)]

    loader = LayerLoader(graph, sampler=Dense(), own_rows=False, normalization="symmetric")
    (batch,) = loader
    exact = loader.infer([lambda h, block: block.mix(h)], nodes=batch.nodes)
    assert torch.allclose(batch.blocks[0].mix(batch.x), exact, atol=1e-6)


def test_sparse_features_stay_sparse_if_asked() -> None:
    rng = np.random.default_rng(0)
    rows = csr_array(rng.random((200, 30)) * (rng.random((200, 30)) < 0.1))
    graph = make(features=rows)
    weight = torch.randn(30, 4, requires_grad=True)
    loader = LayerLoader(graph, (20, 20), 64, sparse=True)
    for sparse, full in zip(loader, LayerLoader(graph, (20, 20), 64), strict=True):
        assert isinstance(full.x, Tensor)
        block = sparse.blocks[0]
        assert sparse.nbytes < full.nbytes
        assert torch.allclose(sparse.x @ weight, full.x @ weight, atol=1e-5)
        assert torch.allclose(block.own(sparse.x) @ weight, block.own(full.x) @ weight, atol=1e-5)
        slopes = [torch.autograd.grad((x @ weight).square().sum(), weight)[0]
                  for x in (sparse.x, full.x)]  # fmt: skip
        assert torch.allclose(slopes[0], slopes[1], atol=1e-3)
        assert isinstance(sparse.to("meta").x, Tensor)
        with pytest.raises(InputError, match=r"block.mix\(x @ W\)"):
            block.mix(sparse.x)

    def step(number: int, h: Any, block: EdgeBlock) -> Tensor:
        return block.mix(h @ weight if number == 0 else h)

    dense = LayerLoader(graph, (20, 20))
    assert torch.allclose(loader.infer(step), dense.infer(step), atol=1e-5)
    with pytest.raises(InputError, match="features are not stored sparse; leave out sparse=True"):
        LayerLoader(make(), sparse=True)


def test_inference_begins_with_rows_of_the_users_own(graph: Graph) -> None:
    """MX, computed once, makes the first layer exact; what is left has a layer less."""
    one, two = LayerLoader(graph, (20,)), LayerLoader(graph, (20, 20))
    assert one.adjacency is not None
    mixed = torch.from_numpy(one.adjacency.to_scipy() @ np.asarray(graph.features))

    def step(_: int, h: Any, block: EdgeBlock) -> Tensor:
        return block.mix(h)

    assert torch.allclose(one.infer(step, features=mixed), two.infer(step), atol=1e-5)


def test_threads_end_with_a_loop_that_is_left_and_errors_arrive(graph: Graph) -> None:
    for batch in LayerLoader(graph, (5,), 4, num_workers=2):
        assert batch.batch_size == 4
        break
    assert not [t for t in threading.enumerate() if t.name.startswith("fastgcn-loader")]

    class Broken:
        def sample(self, batch: Tensor, rng: Any) -> list[Block]:  # noqa: ARG002
            raise InputError("it broke")

    with pytest.raises(InputError, match="it broke"):
        list(LayerLoader(graph, sampler=Broken()))


def test_a_batch_moves_as_a_whole(graph: Graph) -> None:
    batch = next(iter(LayerLoader(graph, (5, 5), 16))).to("meta")
    assert {each.device.type for each in batch.tensors()} == {"meta"}
    with pytest.raises(InputError, match=r"loader with device='cpu', or call batch.to\('cpu'\)"):
        batch.blocks[0].mix(torch.zeros(batch.blocks[0].size[0], 2))


def test_edges_give_what_the_compiled_product_gives(graph: Graph) -> None:
    block = next(iter(LayerLoader(graph, (20,), 64))).blocks[0]
    edges = block.moved(lambda tensor: tensor)
    h = torch.randn(block.size[0], 3)
    assert torch.allclose(edges.mix(h), block.mix(h), atol=1e-6)
    assert torch.allclose(edges.mix(h.double()), block.mix(h).double(), atol=1e-6)


class Uncopied:
    """A sampler that holds a lock, which nothing can copy."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def sample(self, batch: Tensor, rng: Any) -> list[Block]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 400}, "one for each layer of the network"),
        ({"samples": ()}, "one for each layer of the network"),
        ({"samples": (0, 5)}, "at least 1"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"rank": 2, "world_size": 2}, "world_size must be a whole number of at least 3"),
        ({"sampler": "neighbour"}, "did you mean 'neighbor'"),
        ({"sampler": 3}, r"an object with sample\(batch, rng\)"),
        ({"sampler": "neighbor", "normalization": "symmetric"}, "normalization='neighbors'"),
        ({"normalization": "rows"}, "did you mean 'row'"),
        ({"normalization": "neighbors", "self_loops": True}, "normalization='row'"),
        ({"weights": "log"}, "unbiased, self-normalised"),
        ({"nodes": "training"}, "did you mean 'train'"),
        ({"nodes": "test"}, "test part of graph's split is empty; pass nodes="),
        ({"nodes": [1, 2, 1]}, r"node 1 twice; numpy.unique\(nodes\)"),
        ({"nodes": [200]}, r"must lie in 0..199"),
        ({"nodes": np.ones(7, bool)}, r"shape \(200,\)"),
        ({"features": np.ones((20, 2))}, r"array of 200 rows, one per node, .* got 20 rows"),
        ({"features": 3}, r"with take\(ids\), got int"),
        ({"index_sampler": range(3), "shuffle": True}, "leave out shuffle"),
        ({"device": "cuda:99"}, "device cuda:99 is not available"),
    ],
)
def test_wrong_arguments_are_refused(graph: Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LayerLoader(graph, **options)


def test_wrong_graphs_are_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="no labels; set them .* or pass labels=False"):
        LayerLoader(make(labels=None))
    some = np.array(graph.labels)
    some[150:] = -1
    with pytest.raises(InputError, match="node 150 has no label, as have 50 of 200 nodes"):
        LayerLoader(make(labels=some), nodes="all")
    with pytest.raises(InputError, match="no features; fastgcn.structural_features"):
        LayerLoader(make(features=np.empty((200, 0))))
    data = graph.to_pyg()
    data.x = data.x.to("meta")
    with pytest.raises(InputError, match=r"data.x is on meta.* pass data.cpu\(\)"):
        LayerLoader(data)


def test_samplers_that_do_not_fit_are_refused(graph: Graph) -> None:
    adjacency = fastgcn.normalize(graph)
    plain = LayerSampler(adjacency, (30, 20))
    with pytest.raises(InputError, match=r"LayerSampler\(..., own_rows=True\), or pass own_rows="):
        list(LayerLoader(graph, sampler=plain))
    (batch, *_) = LayerLoader(graph, sampler=plain, own_rows=False)
    with pytest.raises(InputError, match="make the sampler with own_rows=True"):
        batch.blocks[0].own(batch.x)
    with pytest.raises(InputError, match="leave them out"):
        LayerLoader(graph, (5,), sampler=plain)
    with pytest.raises(InputError, match="is not normalization='row'"):
        LayerLoader(graph, sampler=plain, normalization="row")
    smaller = fastgcn.normalize(fastgcn.subgraph(graph, np.arange(50)))
    with pytest.raises(InputError, match="the sampler's matrix has 50 nodes"):
        LayerLoader(graph, sampler=FullSampler(smaller, 2))
    with pytest.raises(InputError, match="cannot be copied for several workers.*num_workers=1"):
        list(LayerLoader(graph, sampler=Uncopied(), num_workers=2))
    with pytest.raises(InputError, match="which matrix it estimates; pass normalization="):
        LayerLoader(graph, sampler=Uncopied()).infer([])
    # A node twice in a batch, by an order of the user's own.
    twice: Any = [0, 0, 1]
    with pytest.raises(InputError, match="each node once"):
        list(LayerLoader(graph, (5,), index_sampler=twice))


def test_wrong_steps_of_inference_are_refused(graph: Graph) -> None:
    loader = LayerLoader(graph, (5, 5))
    with pytest.raises(InputError, match="3 layers .* loader has 2; give the loader samples of 3"):
        loader.infer([lambda h, block: block.mix(h)] * 3)
    with pytest.raises(InputError, match=r"layer 0 must give \(200, d\).*got \(7, 2\)"):
        loader.infer(lambda *_: torch.zeros(7, 2))
    with pytest.raises(InputError, match="infer takes step"):
        loader.infer(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        loader.infer(lambda _, h, block: block.mix(h), batch_size=0)
    with pytest.raises(InputError, match="pass batch.x to the first block"):
        next(iter(loader)).blocks[0].mix(torch.zeros(3, 2))


def test_a_loader_is_plain_data_for_spawned_processes(graph: Graph) -> None:
    loader = LayerLoader(graph, (5, 5), 32)
    again = pickle.loads(pickle.dumps(loader))  # noqa: S301
    assert same(list(again), list(loader))
