"""All figures of speed by name: what each measures, and how it is shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.results import Record, Results
from benchmarks.speed.effort import Effort
from benchmarks.speed.graphsage import measure_rivals, show_rivals
from benchmarks.speed.memory import measure_memory, show_memory
from benchmarks.speed.products import (
    measure_inference,
    measure_propagation,
    show_inference,
    show_propagation,
)
from benchmarks.speed.scaling import CURVES, measure_curve, show_scaling
from benchmarks.speed.shown import Shown
from benchmarks.speed.startup import measure_first_start, measure_starts, show_startup
from benchmarks.speed.step import measure_step, show_step
from benchmarks.speed.trainings import measure_training, show_trainings
from fastgcn.errors import DownloadError, InputError, nearest

Records = dict[str, Record]


@dataclass(frozen=True, slots=True)
class Part:
    """One line of results: a function and the settings that it is called with, which name it.

    An `optional` one is left out where its data set cannot be had.
    """

    name: str
    measure: Callable[..., Record]
    settings: dict[str, Any]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A question about speed: its parts, and how their records are shown."""

    name: str
    title: str
    parts: Callable[[Effort], list[Part]]
    show: Callable[[Records], Shown]


def _step(effort: Effort) -> list[Part]:
    settings = {"data": effort.large, "batches": effort.batches, **_turns(effort)}
    return [Part(effort.large, measure_step, settings)]


def _graphsage(effort: Effort) -> list[Part]:
    return [Part(d, measure_rivals, {"data": d, **_turns(effort)}) for d in effort.rivals]


def _trainings(effort: Effort) -> list[Part]:
    settings = {"rounds": effort.long_rounds, "epochs": effort.epochs}
    return [Part(d, measure_training, {"data": d, **settings}) for d in effort.trainings]


def _scaling(effort: Effort) -> list[Part]:
    values = dict(zip(CURVES, (effort.nodes, effort.degrees, effort.samples), strict=True))
    # The point that all three curves share.
    base = {"nodes": effort.nodes[1], "degree": effort.degrees[1]}
    base["samples"] = min(400, max(effort.samples))
    return [
        Part(curve, measure_curve, {"curve": curve, "values": list(v), **base, **_turns(effort)})
        for curve, v in values.items()
    ]


def _large(measure: Callable[..., Record], effort: Effort) -> list[Part]:
    return [Part(effort.large, measure, {"data": effort.large, "rounds": effort.long_rounds})]


def _memory(effort: Effort) -> list[Part]:
    return [Part(effort.large, measure_memory, {"data": effort.large})]


def _startup(effort: Effort) -> list[Part]:
    processes = {"processes": effort.processes}
    firsts = [
        Part(d, measure_first_start, {"data": d, **processes}, optional=d != "digits")
        for d in effort.first_starts
    ]
    return [Part("starts", measure_starts, processes), *firsts]


def _turns(effort: Effort) -> dict[str, Any]:
    return {"rounds": effort.rounds, "chunk_seconds": effort.chunk_seconds}


FIGURES = (
    Figure("step", "A training step against its floor", _step, show_step),
    Figure("graphsage", "A step against GraphSAGE", _graphsage, show_rivals),
    Figure("trainings", "Whole trainings", _trainings, show_trainings),
    Figure("scaling", "Cost against nodes, degree and t", _scaling, show_scaling),
    Figure("propagation", "ÂX", partial(_large, measure_propagation), show_propagation),
    Figure("inference", "Full inference", partial(_large, measure_inference), show_inference),
    Figure("memory", "Peak memory", _memory, show_memory),
    Figure("startup", "Starting", _startup, show_startup),
)


def chosen(names: Sequence[str] | None, figures: Sequence[Figure] = FIGURES) -> list[Figure]:
    """The figures of these names, in their order; all where none is given."""
    known = [figure.name for figure in figures]
    for name in names or ():
        if name not in known:
            raise InputError(
                f"--only takes a figure of {', '.join(known)}, got {name!r}{nearest(name, known)}"
            )
    return [figure for figure in figures if not names or figure.name in names]


def measure(figures: Sequence[Figure], effort: Effort, results: Results) -> None:
    """Measure what `results` does not have of these figures."""
    for figure in figures:
        for part in figure.parts(effort):
            try:
                results.measure(key(figure, part), partial(part.measure, **part.settings))
            except DownloadError:
                if not part.optional:
                    raise


def on_file(figure: Figure, effort: Effort, results: Results) -> Records:
    """The records of a figure's parts that have been measured, by name."""
    found = {part.name: results.get(key(figure, part)) for part in figure.parts(effort)}
    return {name: record for name, record in found.items() if record is not None}


def key(figure: Figure, part: Part) -> Record:
    """What names a part in a file of results."""
    return {"experiment": "speed", "figure": figure.name, "part": part.name, **part.settings}
