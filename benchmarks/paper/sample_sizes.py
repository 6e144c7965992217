"""Trainings of FastGCN with other sample sizes than the usual ones."""

from benchmarks.paper.scale import DataSet
from benchmarks.paper.trainings import Case


def sized_case(data: DataSet, t: int, *, seeds: int, how: str, **settings: object) -> Case:
    """FastGCN with t vertices a sampled layer, other settings changed too, at the usual rate."""
    return Case(
        label=f"{data.label}: FastGCN, {how}, t = {t}",
        data=data.name,
        split=data.split,
        config=data.config.replace(samples=t, epochs=data.size_epochs, **settings),
        rates=(data.config.learning_rate,),
        seeds=seeds,
    )
