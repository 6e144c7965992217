"""The peak memory of training from a store, against the bytes that training needs."""

import json
import subprocess
import sys

from benchmarks.results import Record
from benchmarks.speed.shown import Claim, Shown, megabytes
from benchmarks.speed.training_process import STATUS
from fastgcn.backends.data import training_graph
from fastgcn.data.load import load
from fastgcn.errors import InputError
from fastgcn.report.page import Table
from fastgcn.train.presets import paper_preset

_EPOCHS = 2  # the second finds the first's leavings


def measure_memory(*, data: str) -> Record:
    """Bytes that a fresh process takes at its peak, training two epochs with the paper's preset.

    Evaluation after each epoch and the test are included. `peak` is VmHWM, all resident pages,
    those of the mapped store too; `anonymous` leaves mapped files out. `baseline` are the same of a
    process that only imports what training imports. `needed` are the bytes of ÂX and of the
    training graph's Â in CSR form: offsets, columns, values.
    """
    if not STATUS.exists():
        raise InputError(
            f"the figure memory needs {STATUS}, which Linux has and this system has not; leave it "
            "out with --only"
        )
    graph, config = load(data), paper_preset(data)
    adjacency = training_graph(graph, config).adjacency
    csr = sum(part.nbytes for part in (adjacency.indptr, adjacency.indices, adjacency.values))
    mixed = 4 * adjacency.n * graph.n_features
    return {
        "needed": {"ÂX": mixed, "Â": csr},
        "baseline": _fresh(),
        "training": _fresh(data, str(_EPOCHS)),
    }


def _fresh(*arguments: str) -> Record:
    """What a process of its own says of its memory."""
    command = [sys.executable, "-m", "benchmarks.speed.training_process", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: Record = json.loads(done.stdout)
    return found


def show_memory(records: dict[str, Record]) -> Shown:
    (found,) = records.values()
    needed, baseline, training = sum(found["needed"].values()), found["baseline"], found["training"]
    claims = [
        Claim(
            what="peak / (ÂX + training CSR): what is asked",
            value=training["peak"] / needed,
            at_most=1.3,
        ),
        Claim(
            what="(peak − imports) / (ÂX + training CSR)",
            value=(training["peak"] - baseline["peak"]) / needed,
        ),
        Claim(
            what="(peak − imports) / (ÂX + training CSR), without mapped files",
            value=(training["anonymous"] - baseline["anonymous"]) / needed,
        ),
    ]
    rows = [
        ("ÂX", megabytes(found["needed"]["ÂX"]), ""),
        ("Â of the training graph", megabytes(found["needed"]["Â"]), ""),
        ("a process that imports", megabytes(baseline["peak"]), megabytes(baseline["anonymous"])),
        ("a process that trains", megabytes(training["peak"]), megabytes(training["anonymous"])),
    ]
    head = ("", "MB", "MB without mapped files")
    return Shown(claims, [Table(head, rows, "Peak memory of training")])
