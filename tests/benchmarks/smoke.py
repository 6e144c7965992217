"""The smallest scale of the paper's experiments: generated graphs of a few hundred nodes."""

from benchmarks.cases import OWN_SPLIT, TINY
from benchmarks.paper_scale import DataSet, Scale

from fastgcn import TrainConfig


def smoke() -> Scale:
    """Seconds: every experiment runs, and no figure means anything."""
    config = TrainConfig(hidden=4, samples=20, batch_size=64, epochs=2, threads=1).complete()
    small, medium, large = (
        DataSet(
            paper=paper,
            name=name,
            split=OWN_SPLIT,
            config=config,
            rates=(0.01, 0.001),
            seeds=2,
            sizes=(5, 20),
            size_epochs=2,
            size_seeds=2,
            public=None if paper == "Reddit" else config.replace(inductive=False),
            public_samples=10,
        )
        for paper, name in zip(("Cora", "Pubmed", "Reddit"), TINY, strict=True)
    )
    return Scale(
        about="smoke scale.",
        small=small,
        medium=medium,
        large=large,
        table_sizes=(5, 10),
        table_seeds=1,
        rounds=2,
        chunk_seconds=0.01,
        steps=60,
        descents=3,
        descent_sizes=(50, 200),
        repetitions=40,
        variance_epochs=1,
    )
