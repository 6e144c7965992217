"""What a reader must know of a reproduction first: which machine, which code, how much."""

from benchmarks.paper.kept import Kept
from benchmarks.paper.scale import Scale
from benchmarks.paper.tables import DASH
from benchmarks.results import Record
from fastgcn.report.page import Section, Table

_SCALES = {
    "full": "Full scale.",
    "quick": "Quick scale: fewer epochs and seeds, fixed learning rates, and a smaller stand-in for"
    " Reddit, so that accuracy falls short of what full trainings reach.",
    "smoke": "Smoke scale: tiny generated graphs. Nothing here means anything.",
}


def present(scale: Scale, kept: Kept) -> Section:
    """Machines and versions behind the results that the other sections have read."""
    rows = [
        (
            _machine(where),
            str(where.get("python", DASH)),
            str(where.get("torch", DASH)),
            f"{where.get('fastgcn', DASH)}, {where.get('commit') or DASH}",
            f"{count:,}",
        )
        for where, count in kept.origins()
    ]
    head = ("machine", "Python", "torch", "fastgcn, commit", "results")
    seeds = ", ".join(f"{data.seeds} on {data.label}" for data in scale.data)
    return Section(
        "about",
        "About these figures",
        "Where, with what and how thoroughly was this measured?",
        [
            f"{_SCALES[scale.name]} Seeds 0, 1, ...: {seeds}, fewer for slow systems where a "
            "table says so, more where they are on file.",
            Table(head, rows, "Machines and code behind the results on this page"),
            "The paper's figures stand beside ours in every table, with the ratio ours / paper. "
            f"{DASH} is a figure that the paper does not have, or that is not measured yet.",
        ],
    )


def _machine(where: Record) -> str:
    gpu = f", {where['gpu']}" if where.get("gpu") else ""
    cores = where.get("cores", DASH)
    return f"{where.get('processor', DASH)}, {cores} core{'s' * (cores != 1)}{gpu}"
