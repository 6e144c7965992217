"""How long a training step takes: trainers take turns, so that noise meets all of them."""

import time
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from torch import Tensor

from benchmarks.results import Record
from fastgcn.backends.cpu import CpuBackend
from fastgcn.progress import progress

_FEWEST = 3  # batches of a chunk


def time_steps(
    trainers: Mapping[str, CpuBackend], *, rounds: int, chunk_seconds: float
) -> dict[str, Record]:
    """Seconds a batch of each trainer, by name.

    Medians over `rounds` chunks of batches, each about `chunk_seconds` long, after chunks that
    compile kernels and fill caches. Sampling, the step and all between them count; evaluation,
    precomputation and what is done once an epoch do not.
    """
    steppers = {name: _Stepper(trainer) for name, trainer in trainers.items()}
    with progress("Timing steps", (rounds + 1) * len(steppers), "turns") as advance:
        for stepper in steppers.values():
            stepper.warm_up(chunk_seconds)
            advance(1)
        for _ in range(rounds):
            for stepper in steppers.values():
                stepper.chunk()
                advance(1)
    return {name: stepper.result() for name, stepper in steppers.items()}


class _Stepper:
    """One trainer at work: its batches, epoch after epoch, a chunk at a time."""

    def __init__(self, trainer: CpuBackend) -> None:
        self.trainer = trainer
        self.batches = self._endless()
        self.length = _FEWEST
        self.seconds: list[float] = []  # a batch, one number a chunk

    def _endless(self) -> Iterator[Tensor]:
        while True:
            yield from self.trainer.minibatches.shuffled()

    def warm_up(self, chunk_seconds: float) -> None:
        """Steps that do not count, the last of which tell how many make a chunk.

        Beginning a chunk takes time of its own, so that short ones seem slow.
        """
        self.chunk()
        for share in (0.05, 0.3, 1.0):
            self.chunk()
            self.length = max(_FEWEST, round(share * chunk_seconds / self.seconds[-1]))
        self.seconds.clear()

    def chunk(self) -> None:
        start = time.perf_counter()
        self.trainer.train_on(islice(self.batches, self.length))
        self.seconds.append((time.perf_counter() - start) / self.length)

    def result(self) -> Record:
        return {
            "seconds_per_batch": float(np.median(self.seconds)),
            "chunks": [float(f"{seconds:.4g}") for seconds in self.seconds],
            "batches_per_chunk": self.length,
            "batches_per_epoch": sum(1 for _ in self.trainer.minibatches.shuffled()),
        }
