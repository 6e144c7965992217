"""All experiments: measuring what is missing, and showing what is on file."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.paper import (
    about,
    accuracy_vs_time,
    convergence,
    datasets,
    figure2,
    figure3,
    original_split,
    table2,
    table3,
    total_time,
    variance_check,
)
from benchmarks.paper.kept import Kept, Measurement
from benchmarks.paper.scale import Scale
from fastgcn._version import __version__
from fastgcn.errors import InputError, nearest
from fastgcn.files import write_text
from fastgcn.report.page import Figure, Section, Table, markdown, render_page


class Experiment(Protocol):
    """A table or figure: what must be measured for it, and how it is shown."""

    def plan(self, scale: Scale, kept: Kept) -> Iterator[Measurement]: ...
    def present(self, scale: Scale, kept: Kept) -> Section: ...


EXPERIMENTS: dict[str, Experiment] = {
    "datasets": datasets,
    "table2": table2,
    "figure2": figure2,
    "figure3": figure3,
    "table3": table3,
    "total-time": total_time,
    "accuracy-vs-time": accuracy_vs_time,
    "original-split": original_split,
    "convergence": convergence,
    "variance": variance_check,
}

OnStart = Callable[[int, int, str], None]  # measured so far, to be measured in all, what is next


def chosen(names: Iterable[str]) -> list[str]:
    """Names of experiments, in the order of the paper; `all`, or none, means every one."""
    wanted = set(names) or {"all"}
    for name in wanted - {"all"}:
        if name not in EXPERIMENTS:
            raise InputError(
                f"there is no experiment {name!r}{nearest(name, EXPERIMENTS)}; there are all, "
                f"{', '.join(EXPERIMENTS)}"
            )
    return [name for name in EXPERIMENTS if "all" in wanted or name in wanted]


def measure(names: Sequence[str], scale: Scale, kept: Kept, on_start: OnStart) -> int:
    """Measure what the experiments need and the results do not have; how many that were.

    Each result is on file as soon as it is there. What a plan asks for later may depend on it
    (the learning rate that validation prefers), so the count made before is nearly right only.
    """

    def planned() -> Iterator[Measurement]:
        for name in names:
            yield from EXPERIMENTS[name].plan(scale, kept)

    total = len({repr(m.key) for m in planned() if kept.lacks(m)})
    done = 0
    for measurement in planned():
        if kept.lacks(measurement):
            on_start(done, max(total, done + 1), measurement.label)
            kept.results.measure(measurement.key, measurement.how)
            done += 1
    return done


def present(names: Sequence[str], scale: Scale, kept: Kept) -> list[Section]:
    """The sections of the page, from the results alone."""
    sections = [EXPERIMENTS[name].present(scale, kept) for name in names]
    return [about.present(scale, kept), *sections]


def write(sections: Sequence[Section], scale: Scale, out: Path) -> list[Path]:
    """The page, every figure as SVG and every table as Markdown, in a folder; their paths."""
    out.mkdir(parents=True, exist_ok=True)
    files = {
        "report.html": render_page(
            title="FastGCN, reproduced",
            subtitle="The experiments of Chen, Ma and Xiao (ICLR 2018), measured again beside the "
            f"paper's figures; {scale.name} scale.",
            sections=sections,
            footer=f"Made by fastgcn {__version__} from its result files alone.",
        )
    }
    for section in sections:
        figures = [part for part in section.content if isinstance(part, Figure)]
        tables = [part for part in section.content if isinstance(part, Table)]
        for kind, texts in (
            ("svg", [figure.svg + "\n" for figure in figures]),
            ("md", [markdown(table) for table in tables]),
        ):
            for number, text in enumerate(texts, 1):
                suffix = "" if number == 1 else f"-{number}"
                files[f"{section.id}{suffix}.{kind}"] = text
    for name, text in files.items():
        write_text(out / name, text)
    return [out / name for name in files]
