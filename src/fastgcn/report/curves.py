"""How training went, epoch by epoch, and where its time went."""

import math
from typing import Any

from fastgcn.page import Content, Figure, Section, Table
from fastgcn.plots import Series, bars, lines
from fastgcn.runs import Run

_PURPOSES = {
    "precompute": "computing ÂX and preparing the graph, once",
    "sampling": "waiting for a batch: drawing vertices, gathering rows",
    "compute": "forward, backward and optimiser",
    "evaluation": "validation, and the final test",
}

_NONE = "–"  # an epoch without validation


def learning_curves(run: Run) -> Section:
    """Loss and validation score by epoch, the kept epoch marked."""
    history = run.history
    kept = history[run.metrics["best_epoch"] - 1]
    judged = sum("val_loss" in record for record in history)
    content: list[Content] = [_course(run, kept)]
    if len(history) > 1:  # one point is no curve
        content.append(_loss_figure(history, kept))
        content += [_score_figure(history, kept)] if judged > 1 else []
    content += [
        _milestones(history, kept),
        "The training loss is the mean over the batches of an epoch, as sampled, while the weights "
        "change" + (f"; validation is by the full network after {_when(run)}." if judged else "."),
    ]
    return Section("curves", "Learning curves", "Did training converge, and when?", content)


def _when(run: Run) -> str:
    """The epochs after which there was validation; runs of earlier versions do not say."""
    every = run.metrics.get("validate_every", 1)
    return "every epoch" if every == 1 else f"every {every} epochs and the last one"


def _course(run: Run, kept: dict[str, Any]) -> str:
    first, last = run.history[0], run.history[-1]
    if first is last:
        return f"There was one epoch, with a training loss of {first['train_loss']:.4f}."
    text = (
        f"The training loss went from {first['train_loss']:.4f} to {last['train_loss']:.4f} in "
        f"{len(run.history)} epochs."
    )
    if "val_loss" in kept:
        text += (
            f" Epoch {kept['epoch']} was kept, with a validation loss of {kept['val_loss']:.4f} "
            f"and micro-F1 of {kept['val_micro_f1']:.4f}; at the end they were "
            f"{last['val_loss']:.4f} and {last['val_micro_f1']:.4f}."
        )
    return text


def _loss_figure(history: list[dict[str, Any]], kept: dict[str, Any]) -> Figure:
    series = [_by_epoch(history, "training", "train_loss")]
    if "val_loss" in kept:
        series += [
            _by_epoch(history, "validation", "val_loss"),
            _kept(kept, "val_loss"),
        ]
    svg = lines(
        series,
        title="Loss by epoch",
        description=_range_text(series),
        x_label="epoch",
        y_label="cross entropy",
    )
    return Figure(svg, "Cross entropy of the training batches and of the validation nodes.")


def _score_figure(history: list[dict[str, Any]], kept: dict[str, Any]) -> Figure:
    series = [_by_epoch(history, "validation", "val_micro_f1"), _kept(kept, "val_micro_f1")]
    svg = lines(
        series,
        title="Validation micro-F1 by epoch",
        description=_range_text(series),
        x_label="epoch",
        y_label="micro-F1",
    )
    return Figure(svg, "Micro-F1 of the validation nodes.")


def _by_epoch(history: list[dict[str, Any]], label: str, key: str) -> Series:
    known = [record for record in history if key in record]
    return Series(label, [r["epoch"] for r in known], [r[key] for r in known])


def _kept(kept: dict[str, Any], key: str) -> Series:
    return Series(f"kept: epoch {kept['epoch']}", [kept["epoch"]], [kept[key]])


def _range_text(series: list[Series]) -> str:
    """What a line does, for those who do not see it."""
    parts = [f"{s.label} from {s.y[0]:.4f} to {s.y[-1]:.4f}" for s in series if len(s.x) > 1]
    return f"{'; '.join(parts)}."


def _milestones(history: list[dict[str, Any]], kept: dict[str, Any]) -> Table:
    keys = [
        key for key in ("train_loss", "val_loss", "val_micro_f1", "val_macro_f1") if key in kept
    ]
    names = {"first": history[0], "kept": kept, "last": history[-1]}
    rows = [
        (
            f"{name} ({record['epoch']})",
            *(f"{record[key]:.4f}" if key in record else _NONE for key in keys),
        )
        for name, record in names.items()
    ]
    head = ("epoch", *(key.replace("_", " ").replace("f1", "F1") for key in keys))
    return Table(head, rows, "The first, the kept and the last epoch")


def time_split(run: Run) -> Section:
    """Seconds by purpose."""
    seconds = {purpose: run.metrics[f"{purpose}_seconds"] for purpose in _PURPOSES}
    total = math.fsum(seconds.values())
    largest = max(seconds, key=seconds.__getitem__)
    svg = bars(
        list(seconds),
        [("seconds", list(seconds.values()))],
        title="Seconds by purpose",
        description="; ".join(f"{name} {value:.2f} s" for name, value in seconds.items()) + ".",
        y_label="seconds",
        unit=" s",
    )
    rows = [
        (purpose, f"{seconds[purpose]:.2f}", f"{seconds[purpose] / (total or 1):.1%}", meaning)
        for purpose, meaning in _PURPOSES.items()
    ]
    return Section(
        "time",
        "Time",
        "Where did the time go?",
        [
            f"Of {total:.2f} s, {seconds[largest] / (total or 1):.0%} went into {largest}. A batch "
            f"took {run.metrics['seconds_per_batch'] * 1000:.3f} ms (sampling and compute, mean of "
            f"{run.metrics['batches']:,}).",
            Figure(svg, "Wall-clock seconds over the whole run, all its sessions together."),
            Table(("purpose", "seconds", "share", "what it is"), rows, "Time by purpose"),
            f"Measured while training, on {run.metrics['device']}.",
        ],
    )
