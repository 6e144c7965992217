"""Appendix C: the original split, with few labels."""

from collections.abc import Iterator
from functools import partial

from benchmarks.paper.graphs import OWN_SPLIT
from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.published import ORIGINAL_SPLIT, SYSTEMS
from benchmarks.paper.scale import DataSet, Scale
from benchmarks.paper.tables import against_paper, mean, mean_sd, significant
from benchmarks.paper.total_time import all_seconds
from benchmarks.paper.trainings import Case
from fastgcn.config import TrainConfig
from fastgcn.report.page import Section
from fastgcn.train.presets import METHODS

_SYSTEMS = {
    system: SYSTEMS.get(system, "FastGCN-transductive") for system in ORIGINAL_SPLIT
}  # fmt: skip
_SEARCH_EPOCHS = 500


def plan(scale: Scale, kept: Kept) -> Iterator[Measurement]:
    """Trainings of the four systems."""
    for data in _with_public(scale):
        for system in _SYSTEMS:
            yield from _case(system, data).plan(kept)


def _with_public(scale: Scale) -> list[DataSet]:
    return [data for data in scale.data if data.public is not None]


def _case(system: str, data: DataSet) -> Case:
    config = _settings(system, data)
    searched = system != "gcn"  # whose rate is Kipf and Welling's
    return Case(
        label=f"{data.label}, original split: {_SYSTEMS[system]}",
        data=data.name,
        split=data.split if data.split == OWN_SPLIT else "public",
        config=config,
        rates=data.rates if searched else (config.learning_rate,),
        seeds=data.seeds,
        search_epochs=_search_epochs(system, config),
        curve=True,
    )


def _settings(system: str, data: DataSet) -> TrainConfig:
    assert data.public is not None
    if system == "gcn":
        kipf = METHODS["gcn"](data.public)
        return kipf.replace(epochs=min(kipf.epochs, data.public.epochs))
    if system == "fastgcn-transductive":
        return data.public
    inductive = data.public.replace(inductive=True, samples=data.public_samples)
    return METHODS[system](inductive)


def _search_epochs(system: str, config: TrainConfig) -> int | None:
    """FastGCN-transductive is searched to the end, as `fastgcn bench accuracy` does."""
    if system == "fastgcn-transductive":
        return None
    return min(_SEARCH_EPOCHS, config.epochs)


def present(scale: Scale, kept: Kept) -> Section:
    """F1 and time beside the paper's."""
    data = _with_public(scale)
    return Section(
        "original-split",
        "The original split (appendix C)",
        "What is left of the accuracy where few nodes have labels, and does it help to see the "
        "whole graph?",
        [
            against_paper(
                {name: partial(_score, kept, system) for system, name in _SYSTEMS.items()},
                data,
                caption="Test micro-F1 on the original split, mean ± sd over seeds",
                digits=3,
            ),
            against_paper(
                {name: partial(_time, kept, system) for system, name in _SYSTEMS.items()},
                data,
                caption="Seconds of training in all, evaluation included",
            ),
            *_findings(data, kept),
            *(_how(each) for each in data),
        ],
    )


def _score(kept: Kept, system: str, data: DataSet) -> tuple[float | None, str, float | None]:
    scores = [run["test_micro_f1"] for run in _case(system, data).scores(kept)]
    return mean(scores), mean_sd(scores), ORIGINAL_SPLIT[system][data.paper][1]


def _time(kept: Kept, system: str, data: DataSet) -> tuple[float | None, str, float | None]:
    runs = _case(system, data).scores(kept, timed=True)
    seconds = mean([all_seconds(run) for run in runs])
    return seconds, significant(seconds), ORIGINAL_SPLIT[system][data.paper][0]


def _findings(data: list[DataSet], kept: Kept) -> list[str]:
    texts = []
    for each in data:
        inductive, _, _ = _score(kept, "fastgcn", each)
        whole, _, _ = _score(kept, "fastgcn-transductive", each)
        gcn, _, _ = _score(kept, "gcn", each)
        if inductive is not None and whole is not None and gcn is not None:
            texts.append(
                f"On {each.label} seeing the whole graph changes FastGCN's F1 by "
                f"{whole - inductive:+.3f}, and leaves it {whole - gcn:+.3f} from the original "
                "GCN's."
            )
    return [" ".join(texts)] if texts else []


def _how(data: DataSet) -> str:
    config = data.public
    assert config is not None
    seeds = ", ".join(f"{_SYSTEMS[s]} {_case(s, data).seeds}" for s in _SYSTEMS)
    return (
        f"{data.label}: at most {config.epochs:,} epochs, which here are single batches, patience "
        f"{config.patience:,}; L2 {config.weight_decay:g} on the first layer, features scaled: "
        f"{config.feature_scaling}. GCN has Kipf and Welling's settings. FastGCN and "
        "GraphSAGE-GCN are inductive: they see the graph of the training nodes alone, of which "
        f"FastGCN draws {data.public_samples}. Trainings: {seeds}, or more where they are on file."
    )
