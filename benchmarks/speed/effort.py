"""On what and how thoroughly speed is measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What the figures are taken of.

    Attributes:
        large: the data set of Reddit's size.
        rivals: data sets on which steps are compared with GraphSAGE's.
        trainings: data sets that networks are trained on to the end.
        first_starts: data sets that a fresh machine trains on.
        rounds, chunk_seconds: turns that a short time is the median of, and their length.
        long_rounds: the same for what takes seconds.
        batches: batches whose steps are compared with their floor.
        epochs: of whole trainings, at most so many; None: the preset's.
        nodes, degrees, samples: sizes that the time of a step is drawn over.
        processes: fresh processes that a start is the median of.
        stand_ins: whether the data are so small that times mean nothing.
    """

    large: str
    rivals: tuple[str, ...]
    trainings: tuple[str, ...]
    first_starts: tuple[str, ...]
    rounds: int
    chunk_seconds: float
    long_rounds: int
    batches: int
    epochs: int | None
    nodes: tuple[int, ...]
    degrees: tuple[int, ...]
    samples: tuple[int, ...]
    processes: int
    stand_ins: bool = False


def full() -> Effort:
    """About half an hour on two cores; takes reddit-sim, Cora, Pubmed, and 8 GB of memory."""
    return Effort(
        large="reddit-sim",
        rivals=("reddit-sim", "pubmed"),
        trainings=("cora", "pubmed"),
        first_starts=("digits", "cora"),
        rounds=9,
        chunk_seconds=0.3,
        long_rounds=3,
        batches=256,
        epochs=None,
        nodes=(10_000, 100_000, 1_000_000, 10_000_000),
        degrees=(5, 10, 20, 50, 100),
        samples=(50, 100, 200, 400, 800, 1600, 3200, 6400),
        processes=5,
    )


def quick() -> Effort:
    """A look, in seconds, on small stand-ins: that everything runs, not how fast it is."""
    return Effort(
        large="digits",
        rivals=("digits",),
        trainings=("digits",),
        first_starts=("digits",),
        rounds=2,
        chunk_seconds=0.002,
        long_rounds=1,
        batches=3,
        epochs=2,
        nodes=(600, 1200),
        degrees=(4, 8),
        samples=(50, 100),
        processes=1,
        stand_ins=True,
    )
