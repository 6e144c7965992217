"""Several networks that differ in their seeds alone, as one: the mean of their outputs.

After the first network of a run, the others are trained side by side, in the same way. Then all are
put into one `GCN` whose hidden rows are theirs next to each other, so that everything that applies
a network applies an ensemble.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastgcn.backends import Backend
from fastgcn.backends.data import SharedData
from fastgcn.config import TrainConfig
from fastgcn.model import GCN, as_gcn, build_model
from fastgcn.network import Network
from fastgcn.progress import note, progress
from fastgcn.train.side_by_side import train_side_by_side
from fastgcn.train.training import Training

# Makes the backend of a network: its number, its settings, and what the networks share.
MakeBackend = Callable[[int, TrainConfig, SharedData], Backend]

# Between the seeds of two networks: seeds 0, 1, 2, ... of runs share no network.
_APART = 1_000_003
_SEEDS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Further:
    """The networks of a run beside the first, trained to their ends, and the seconds they took."""

    trainings: Sequence[Training] = ()
    seconds: float = 0.0


def train_further(config: TrainConfig, epochs: int, make: MakeBackend) -> Further:
    """Train the networks beside the first, each for at most the `epochs` that the first had; one
    whose numbers go wrong is left out."""
    shared, began = SharedData(), time.perf_counter()
    running = {}
    for number in range(1, config.ensemble):
        seed = (config.seed + number * _APART) % _SEEDS
        own = config.replace(seed=seed, epochs=epochs)
        running[number] = Training(own, make(number, own, shared))
    with progress("Training further networks", len(running) * epochs, "epochs") as advance:
        failed = train_side_by_side(running, epochs, advance)
    for number, wrong in failed.items():
        note(f"Left out network {number + 1} of the ensemble, where {wrong}")
    found = [training for number, training in running.items() if number not in failed]
    return Further(found, time.perf_counter() - began)


def joined(model: Network, config: TrainConfig, further: Sequence[Training]) -> Network:
    """The network of a run with the best weights of all: `model` itself if there is no other."""
    if not further:
        return model
    first = as_gcn(model, "an ensemble")
    states = [first.state_dict(), *(each.best for each in further)]
    found = stack(states, config, first)
    found.decision = first.decision
    return found


def stack(states: Sequence[Mapping[str, Tensor]], config: TrainConfig, like: GCN) -> GCN:
    """One network of several, whose weights are given, with the sizes of one of them.

    >>> nets = [GCN([3, 4, 2], rng=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    >>> both = stack([net.state_dict() for net in nets], TrainConfig().complete(), nets[0])
    >>> both.sizes, both.ensemble
    ((3, 8, 2), 2)
    """
    k, (n_in, *hidden, n_out) = len(states), like.sizes
    sizes = [n_in, *(k * width for width in hidden), n_out]
    found = as_gcn(build_model(config, sizes, like.task, ensemble=k))
    last = len(sizes) - 2
    weights = {name: _joined(name, [s[name] for s in states], last) for name in states[0]}
    found.load_state_dict(weights)
    return found.to(next(like.parameters()).device)


def _joined(name: str, parts: Sequence[Tensor], last: int) -> Tensor:
    """A tensor of the network whose parts are `parts`; `last` is the number of its last layer."""
    kind, *where = name.split(".")
    if kind == "norms":
        return torch.cat([*parts]) if parts[0].ndim else parts[0]
    if kind != "layers":  # statistics of features and targets, which all have in common
        return parts[0]
    number, is_bias = int(where[0]), where[1] == "bias"
    if number == last and (is_bias or number == 0):
        return torch.stack([*parts]).mean(0)
    if number == last:
        return torch.cat([*parts]) / len(parts)
    if is_bias or number == 0:
        return torch.cat([*parts], dim=-1)
    return _block_diagonal(parts)


def _block_diagonal(parts: Sequence[Tensor]) -> Tensor:
    rows, columns = parts[0].shape
    whole = parts[0].new_zeros(len(parts) * rows, len(parts) * columns)
    for number, part in enumerate(parts):
        whole.narrow(0, number * rows, rows).narrow(1, number * columns, columns).copy_(part)
    return whole


def networks_of(model: GCN, config: TrainConfig) -> list[GCN]:
    """The networks of an ensemble, one by one; `config` has its settings."""
    k, (n_in, *hidden, n_out) = model.ensemble, model.sizes
    if k == 1:
        return [model]
    sizes, last = [n_in, *(width // k for width in hidden), n_out], len(model.sizes) - 2
    found = [as_gcn(build_model(config, sizes, model.task)) for _ in range(k)]
    for part, network in enumerate(found):
        state = network.state_dict()
        taken = {
            name: _part(name, value, tuple(state[name].shape), part, last)
            for name, value in model.state_dict().items()
        }
        network.load_state_dict(taken)
    return found


def _part(name: str, whole: Tensor, shape: tuple[int, ...], part: int, last: int) -> Tensor:
    """What `_joined` was given as number `part`, of this shape; the mean where it took a mean."""
    if whole.shape == shape:
        return whole
    taken = whole
    for axis, size in enumerate(shape):
        if taken.shape[axis] != size:
            taken = taken.narrow(axis, part * size, size)
    of_last = name.startswith(f"layers.{last}.")
    return taken * (whole.shape[0] // shape[0]) if of_last else taken
