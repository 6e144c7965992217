"""`LayerLoader`: minibatches by layer-wise sampling, for any network written in PyTorch."""

import copy
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.features.sparse import SparseMatrix, dense
from fastgcn.features.store import FeatureStore
from fastgcn.loader import source
from fastgcn.loader.batch import LayerBatch, Matrix, Weights, check_weights, edge_block
from fastgcn.loader.layerwise import Step, layerwise
from fastgcn.machine import choose_device
from fastgcn.sampling.block import Sampler

SAMPLES = (400, 400)


class IndexSampler(Protocol):
    """Positions among the loader's nodes, such as torch's `DistributedSampler` gives them."""

    def __iter__(self) -> Iterator[int]: ...

    def __len__(self) -> int: ...


class LayerLoader:
    """Iterates over minibatches (`LayerBatch`) whose layers are drawn from the whole graph.

        loader = LayerLoader(data, samples=(400, 400), batch_size=256)
        for batch in loader:
            h = batch.x
            for conv, block in zip(convs, batch.blocks, strict=True):
                h = convolve(conv, h, block)
            loss = cross_entropy(h, batch.y)

    Batches depend on `seed` and the epoch alone: the number of workers does not change them. Each
    pass over the loader is the next epoch; `set_epoch` sets its number.

    Args:
        data: a PyG `Data`, a `Graph`, the path of a store, or what else `fastgcn.load` takes.
        samples: vertices drawn for each layer, from the input up; the number of layers is their
            number. For `sampler="neighbor"`, neighbours of each node.
        batch_size: nodes a minibatch.
        nodes: which nodes batches are made of: "train", "val", "test", "all", node numbers, or a
            mask (n,).
        sampler: how vertices are drawn: "ladies" (from the neighbours of the rows above),
            "importance", "uniform" or "flat" (from all vertices), "neighbor" (each row's own
            neighbours, GraphSAGE), "full" (all neighbours, nothing is drawn), or an object with
            `sample(batch, rng)`.
        normalization: M, by which a layer multiplies: "symmetric" (GCN), "row", "neighbors" (means
            with and without the node) or "none" (A itself; "sum" is the same). For a sampler of
            your own, it names the matrix that the sampler was made with.
        self_loops: whether M has a diagonal; by default that of "symmetric" and "row".
        own_rows: have the input rows of a layer begin with its output rows, for networks that read
            a node's own row; nearly all of PyG's do.
        weights: "unbiased" or "self-normalised"; see `EdgeBlock`.
        features: rows (n, F), or a store of them (`FeatureStore`), in place of the graph's.
        sparse: leave features that are stored sparse as they are: `batch.x` is a `SparseMatrix`,
            for networks that begin with `x @ W`; on another device it is dense.
        labels: give `batch.y`; False for graphs or nodes without labels.
        shuffle: a new order of the nodes in each epoch; True unless `index_sampler` is given.
        drop_last: leave out a last batch that is not full.
        seed: of the order and of all draws.
        num_workers: threads that make batches ahead; 0 makes them when they are asked for. The
            kernels run without Python's lock, so no processes are needed.
        prefetch_factor: batches that each worker makes ahead.
        pin_memory: copy batches to pinned memory.
        device: where batches are put, such as "cuda".
        rank: number of this process, which takes every world_size-th node of the order, from `rank`
            on, so that processes have disjoint shares. Shuffled shares are equally long, and the
            nodes left over, fewer than world_size, change with the epoch.
        world_size: how many processes share the nodes.
        index_sampler: gives positions among `nodes`, such as torch's
            `DistributedSampler(range(len(loader.nodes)))`; takes the place of `shuffle`, `rank` and
            `world_size`.

    Attributes:
        graph, nodes, features: what batches are made of.
        layer_sampler: draws their layers. (Lightning takes `sampler` for that of a `DataLoader`.)
        adjacency: M; None if the sampler has none and no normalisation was named.
    """

    def __init__(
        self,
        data: Any,
        samples: Sequence[int] | None = None,
        batch_size: int = 256,
        *,
        nodes: Any = "train",
        sampler: Sampler | str = "ladies",
        normalization: str | None = None,
        self_loops: bool | None = None,
        own_rows: bool = True,
        weights: Weights = "unbiased",
        features: FeatureStore | Tensor | FloatArray | None = None,
        sparse: bool = False,
        labels: bool = True,
        shuffle: bool | None = None,
        drop_last: bool = False,
        seed: int = 0,
        num_workers: int = 1,
        prefetch_factor: int = 2,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
        rank: int = 0,
        world_size: int = 1,
        index_sampler: IndexSampler | None = None,
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("seed", seed, 0),
            ("num_workers", num_workers, 0),
            ("prefetch_factor", prefetch_factor, 1),
            ("rank", rank, 0),
            ("world_size", world_size, rank + 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"{name} must be a whole number of at least {least}, got {value!r}"
                )
        check_weights(weights)
        self.graph = source.open_graph(data)
        self.nodes = source.choose_nodes(self.graph, nodes)
        self.features = source.make_features(self.graph, features)
        if sparse and not isinstance(self.features, SparseMatrix):
            raise InputError("the features are not stored sparse; leave out sparse=True")
        self.sparse = sparse
        self._labels = source.make_labels(self.graph, self.nodes, labels)
        made = self._choose_sampler(sampler, samples, normalization, self_loops, own_rows)
        self.layer_sampler, self.adjacency = made.sampler, made.adjacency
        self.own_rows = own_rows
        self._matrix = Matrix(made.normalization, made.loops, made.exact, weights)
        if index_sampler is not None and (shuffle or world_size > 1):
            raise InputError(
                "index_sampler gives the order and the share of this process; leave out shuffle, "
                "rank and world_size"
            )
        self.batch_size, self.drop_last, self.seed = batch_size, drop_last, seed
        self.shuffle = index_sampler is None if shuffle is None else shuffle
        self.rank, self.world_size, self.index_sampler = rank, world_size, index_sampler
        self.num_workers, self.prefetch_factor = num_workers, prefetch_factor
        self.device = None if device is None else choose_device(str(device))
        self.pin_memory = pin_memory and torch.cuda.is_available()
        if pin_memory and not self.pin_memory:
            warnings.warn("pin_memory is not used: there is no CUDA device here", stacklevel=2)
        self.epoch = 0

    def _choose_sampler(
        self,
        sampler: Any,
        samples: Sequence[int] | None,
        normalization: str | None,
        self_loops: bool | None,
        own_rows: bool,
    ) -> source.SampledMatrix:
        named = isinstance(sampler, str)
        if normalization == "sum":
            normalization = "none"  # what the setting `normalization` calls A itself
        if named and normalization is None:
            normalization = "neighbors" if sampler == "neighbor" else "symmetric"
        loops = bool(self_loops)
        if normalization is not None:
            loops = source.check_normalization(normalization, self_loops)
        if not named:
            if samples is not None:
                raise InputError("samples are those of the sampler that was given; leave them out")
            return source.use_sampler(self.graph, sampler, normalization, loops)
        assert normalization is not None
        numbers = _layer_samples(SAMPLES if samples is None else samples)
        return source.make_sampler(
            self.graph, sampler, numbers, normalization, loops=loops, own_rows=own_rows
        )

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass, from 0; passes with the same number are the same."""
        self.epoch = epoch
        set_epoch = getattr(self.index_sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)

    def __len__(self) -> int:
        """The number of minibatches of a pass."""
        count = self._count()
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[LayerBatch]:
        epoch = self.epoch
        batches, seeds = self._batches(epoch), self._seeds(epoch)
        self.set_epoch(epoch + 1)
        tasks = zip(batches, seeds, strict=True)
        if self.num_workers == 0:
            return (self._placed(self._make(self.layer_sampler, *task)) for task in tasks)
        return self._made_ahead(tasks)

    def _count(self) -> int:
        """The nodes of a pass in this process."""
        if self.index_sampler is not None:
            return len(self.index_sampler)
        if self.shuffle:
            return len(self.nodes) // self.world_size
        return len(range(self.rank, len(self.nodes), self.world_size))

    def _batches(self, epoch: int) -> list[Tensor]:
        if self.index_sampler is not None:
            order = np.fromiter(self.index_sampler, np.int64)
        elif self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.nodes))
        else:
            order = np.arange(len(self.nodes))
        if self.index_sampler is None:
            order = order[self.rank :: self.world_size][: self._count()]
        nodes = torch.from_numpy(self.nodes[order])
        return list(torch.split(nodes[: len(self) * self.batch_size], self.batch_size))

    def _seeds(self, epoch: int) -> list[int]:
        """A seed for each batch, so that it does not matter which worker makes it."""
        parts = np.random.SeedSequence([self.seed, epoch, self.rank])
        return [int(each) for each in parts.generate_state(len(self), np.uint64) >> np.uint64(1)]

    def _make(self, sampler: Sampler, nodes: Tensor, seed: int) -> LayerBatch:
        blocks = sampler.sample(nodes, torch.Generator().manual_seed(seed))
        if not blocks:
            raise InputError("the sampler made no blocks; a network needs one for each layer")
        layers = tuple(edge_block(each, self._matrix, own_rows=self.own_rows) for each in blocks)
        x = self.features.take(blocks[0].src.numpy())
        x = x if self.sparse else dense(x)
        y = None if self._labels is None else self._labels[nodes]
        batch = LayerBatch(x, y, layers)
        return batch.pin_memory() if self.pin_memory else batch

    def _made_ahead(self, tasks: Iterable[tuple[Tensor, int]]) -> Iterator[LayerBatch]:
        """The batches in order, made by threads; an error is raised in place of its batch."""
        samplers: SimpleQueue[Sampler] = SimpleQueue()
        for sampler in copies(self.layer_sampler, self.num_workers):
            samplers.put(sampler)

        def make(task: tuple[Tensor, int]) -> LayerBatch:
            sampler = samplers.get()
            try:
                return self._make(sampler, *task)
            finally:
                samplers.put(sampler)

        waiting: deque[Future[LayerBatch]] = deque()
        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="fastgcn-loader")
        try:
            for task in tasks:
                waiting.append(pool.submit(make, task))
                if len(waiting) > self.num_workers * self.prefetch_factor:
                    yield self._placed(waiting.popleft().result())
            while waiting:
                yield self._placed(waiting.popleft().result())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _placed(self, batch: LayerBatch) -> LayerBatch:
        if self.device is None:
            return batch
        return batch.to(self.device, non_blocking=self.pin_memory)

    def infer(
        self,
        step: Step | Sequence[Callable[..., Tensor]],
        *,
        nodes: Any = "all",
        batch_size: int | None = None,
        features: FeatureStore | Tensor | FloatArray | None = None,
    ) -> Tensor:
        """(len(nodes), C): the exact network, layer by layer over all nodes; nothing is sampled.

        See `layerwise`. `features` are rows to begin with in place of the loader's, (n, d).
        """
        if self.adjacency is None:
            raise InputError(
                "this sampler does not say which matrix it estimates; pass normalization= to the "
                "loader"
            )
        return layerwise(
            step,
            self.adjacency,
            self.features if features is None else source.make_features(self.graph, features),
            layers=self._n_layers(),
            matrix=self._matrix,
            nodes=None if isinstance(nodes, str) and nodes == "all" else self._asked(nodes),
            batch_size=batch_size,
            device=self.device,
            sparse=self.sparse and features is None,
        )

    def _asked(self, nodes: Any) -> IntArray:
        return source.choose_nodes(self.graph, nodes)

    def _n_layers(self) -> int:
        for name in ("samples", "fanouts", "layers"):
            found = getattr(self.layer_sampler, name, None)
            if isinstance(found, int):
                return found
            if isinstance(found, tuple | list):
                return len(found)
        probe = torch.from_numpy(self.nodes[:1])
        return len(self.layer_sampler.sample(probe, torch.Generator().manual_seed(0)))


def _layer_samples(samples: Any) -> tuple[int, ...]:
    numbers = tuple(samples) if isinstance(samples, Sequence) else ()
    if not numbers or not all(isinstance(t, int) and t >= 1 for t in numbers):
        raise InputError(
            "samples must be whole numbers of at least 1, one for each layer of the network from "
            f"the input up, such as (400, 400), got {samples!r}"
        )
    return numbers


def copies(sampler: Sampler, count: int) -> list[Sampler]:
    """The sampler itself, and copies for the other workers: each has work space of its own.

    The graph's arrays, under the names that our samplers use, are shared.
    """
    shared = [getattr(sampler, name, None) for name in ("adjacency", "csr")]
    made = [sampler]
    for _ in range(count - 1):
        memo = {id(each): each for each in shared if each is not None}
        try:
            made.append(copy.deepcopy(sampler, memo))
        except Exception as error:
            raise InputError(
                f"{type(sampler).__name__} cannot be copied for several workers ({error}); pass "
                "num_workers=1"
            ) from error
    return made
