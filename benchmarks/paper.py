"""All experiments of the paper, by name."""

from functools import partial
from typing import Any

from benchmarks.convergence import plan_convergence, show_convergence
from benchmarks.pages import Experiment
from benchmarks.paper_samples import (
    plan_datasets,
    plan_figure2,
    plan_table2,
    show_datasets,
    show_figure2,
    show_table2,
)
from benchmarks.paper_scale import Scale
from benchmarks.paper_systems import (
    plan_figure3,
    plan_original_split,
    plan_times,
    plan_trainings,
    show_accuracy_vs_time,
    show_figure3,
    show_original_split,
    show_summary,
    show_table3,
    show_total_time,
)
from benchmarks.variance import plan_variance, show_variance


def experiments(scale: Scale) -> list[Experiment]:
    """All experiments of the paper, in its order."""
    tables: dict[str, tuple[str, str, Any, Any]] = {
        "datasets": (
            "Data sets (Table 1)",
            "Are these the graphs that the paper measured?",
            plan_datasets, show_datasets,
        ),
        "table2": (
            "Precomputing the first layer (Table 2)",
            "What does it cost, and what does it gain, to compute ÂX once instead of sampling it?",
            plan_table2, show_table2,
        ),
        "figure2": (
            "Uniform and importance sampling (Figure 2)",
            "Does importance sampling give more accurate networks than uniform sampling?",
            plan_figure2, show_figure2,
        ),
        "figure3": (
            "Time a batch and accuracy (Figure 3)",
            "Is FastGCN faster than the other systems, and as accurate?",
            plan_figure3, show_figure3,
        ),
        "table3": (
            "Time a batch (Table 3)",
            "How long does a training step take, and how many of FastGCN's steps is that?",
            plan_times, show_table3,
        ),
        "total-time": (
            "Total training time (appendix C)",
            "How long does training take in all, when every system stops by the same rule?",
            plan_trainings, show_total_time,
        ),
        "accuracy-vs-time": (
            "Accuracy against time (appendix C)",
            "How soon is each system how accurate?",
            plan_trainings, show_accuracy_vs_time,
        ),
        "original-split": (
            "The original split (appendix C)",
            "What is left of the accuracy where few nodes have labels, and does it help to see the "
            "whole graph?",
            plan_original_split, show_original_split,
        ),
        "convergence": (
            "Convergence (appendix D, theorem 5)",
            "Does SGD with sampled gradients converge as O(1/k) on a strictly convex problem?",
            plan_convergence, show_convergence,
        ),
        "variance": (
            "Variance (Prop. 2, theorem 3, Prop. 4)",
            "Is the variance of the sampler the one that the paper derives?",
            plan_variance, show_variance,
        ),
    }  # fmt: skip
    return [
        Experiment(
            name=name,
            title=title,
            question=question,
            plan=partial(plan, scale),
            show=partial(show, scale),
        )
        for name, (title, question, plan, show) in tables.items()
    ]


def summary(scale: Scale) -> Experiment:
    """The table of the README."""
    return Experiment(
        name="reproduce",
        title="The paper, measured again",
        plan=partial(plan_figure3, scale),
        show=partial(show_summary, scale),
    )
