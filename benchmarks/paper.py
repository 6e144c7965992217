"""All experiments of the paper, by name."""

from collections.abc import Callable, Iterable
from functools import partial

from benchmarks import convergence, paper_negative, paper_samples, paper_systems, variance
from benchmarks.cases import Case, from_cases
from benchmarks.pages import Experiment
from benchmarks.paper_scale import Contents, Scale
from benchmarks.results import Measurement, Results

Parts = Callable[[Scale], Iterable[Case | Measurement]]
Show = Callable[[Scale, Results], Contents]

# By name: the title, the question, what must be measured for it, and how it is shown.
_EXPERIMENTS: dict[str, tuple[str, str, Parts, Show]] = {
    "negative": (
        "What does not come out",
        "Where do these figures contradict the paper, or speak against its method?",
        paper_negative.parts,
        paper_negative.show,
    ),
    "summary": (
        "Time and accuracy of all systems",
        "Figure 3 in one table.",
        paper_systems.times_and_trainings,
        paper_systems.show_summary,
    ),
    "datasets": (
        "Data sets (Table 1)",
        "Are these the graphs that the paper measured?",
        paper_samples.statistics,
        paper_samples.show_datasets,
    ),
    "table2": (
        "Precomputing the first layer (Table 2)",
        "What does it cost, and what does it gain, to compute ÂX once instead of sampling it?",
        paper_samples.table2,
        paper_samples.show_table2,
    ),
    "figure2": (
        "Uniform and importance sampling (Figure 2)",
        "Does importance sampling give more accurate networks than uniform sampling?",
        paper_samples.figure2,
        paper_samples.show_figure2,
    ),
    "figure3": (
        "Time a batch and accuracy (Figure 3)",
        "Is FastGCN faster than the other systems, and as accurate?",
        paper_systems.times_and_trainings,
        paper_systems.show_figure3,
    ),
    "table3": (
        "Time a batch (Table 3)",
        "How long does a training step take, and how many of FastGCN's steps is that?",
        paper_systems.times,
        paper_systems.show_table3,
    ),
    "total-time": (
        "Total training time (appendix C)",
        "How long does training take in all, when every system stops by the same rule?",
        paper_systems.trainings,
        paper_systems.show_total_time,
    ),
    "accuracy-vs-time": (
        "Accuracy against time (appendix C)",
        "How soon is each system how accurate?",
        paper_systems.trainings,
        paper_systems.show_accuracy_vs_time,
    ),
    "original-split": (
        "The original split (appendix C)",
        "What is left of the accuracy where few nodes have labels, and does it help to see the "
        "whole graph?",
        paper_systems.original_split,
        paper_systems.show_original_split,
    ),
    "convergence": (
        "Convergence (appendix D, theorem 5)",
        "Does SGD with sampled gradients converge as O(1/k) on a strictly convex problem?",
        convergence.descents,
        convergence.show_convergence,
    ),
    "variance": (
        "Variance (Prop. 2, theorem 3, Prop. 4)",
        "Is the variance of the sampler the one that the paper derives?",
        variance.variances,
        variance.show_variance,
    ),
}


def experiments(scale: Scale) -> list[Experiment]:
    """All experiments of the paper, what contradicts it first, then in its order."""
    return [
        from_cases(name, title, partial(parts, scale), partial(show, scale), question)
        for name, (title, question, parts, show) in _EXPERIMENTS.items()
    ]
