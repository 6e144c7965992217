"""How long it takes to start: the help, the import, and the first training on a fresh machine."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.results import Record
from benchmarks.speed.shown import Claim, Shown, short
from fastgcn.data.load import load
from fastgcn.progress import progress
from fastgcn.report.page import Table

_COMMANDS = {
    "interpreter": ["-c", "pass"],
    "import": ["-c", "import fastgcn"],
    "help": ["-m", "fastgcn", "--help"],
}


def measure_starts(*, processes: int) -> Record:
    """Seconds from the start of a fresh process to its end, medians, in turns.

    Python itself, `import fastgcn`, and `fastgcn --help`; files are in the system's cache.
    """
    found: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    with progress("Starting processes", len(_COMMANDS) * (processes + 1), "processes") as advance:
        for number in range(processes + 1):
            for name, arguments in _COMMANDS.items():
                seconds = _seconds(arguments)
                if number > 0:  # the first brings the files into the cache
                    found[name].append(seconds)
                advance(1)
    return {name: float(np.median(seconds)) for name, seconds in found.items()}


def measure_first_start(*, data: str, processes: int) -> Record:
    """Seconds of `fastgcn train DATA --epochs 1` in a fresh process, kernels not compiled yet.

    `cold`: with an empty folder for compiled kernels, as on a fresh machine; `warm`: the next
    start. Loading, ÂX, an epoch's steps, evaluation and the test are included, so that the
    first step is done before. Medians of so many.
    """
    load(data)  # fetched once, and not counted
    cold: list[float] = []
    warm: list[float] = []
    with progress(f"First starts, {data}", 2 * processes, "processes") as advance:
        for _ in range(processes):
            with tempfile.TemporaryDirectory() as folder:
                for number, seconds in enumerate((cold, warm)):
                    run = Path(folder) / f"run-{number}"
                    arguments = ["-m", "fastgcn", "train", data, "--epochs", "1", "--json"]
                    kernels = {"NUMBA_CACHE_DIR": str(Path(folder) / "kernels")}
                    seconds.append(_seconds([*arguments, "--run-dir", str(run)], kernels))
                    advance(1)
    return {"cold": float(np.median(cold)), "warm": float(np.median(warm))}


def _seconds(arguments: list[str], environment: Mapping[str, str] | None = None) -> float:
    """Seconds that Python with these arguments takes, from start to end."""
    variables = os.environ | (environment or {})
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=variables, capture_output=True, check=True)
    return time.perf_counter() - start


def show_startup(records: dict[str, Record]) -> Shown:
    starts, firsts = records["starts"], dict(records)
    del firsts["starts"]
    claims = [
        Claim(what="`fastgcn --help`", value=starts["help"], at_most=0.3, unit=" s"),
        Claim(what="`import fastgcn`", value=starts["import"], at_most=0.5, unit=" s"),
    ]
    claims += [
        Claim(
            what=f"first training on {data}, cold kernels",
            value=found["cold"],
            at_most=10.0,
            unit=" s",
        )
        for data, found in firsts.items()
    ]
    rows = [("Python itself", short(starts["interpreter"]))]
    rows += [(f"next start, one epoch on {d}", short(found["warm"])) for d, found in firsts.items()]
    return Shown(claims, [Table(("", "s"), rows, "Beside these")])
