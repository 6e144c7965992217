"""Generating a graph of Reddit's size, and opening a store of 5 GB: seconds and memory.

    python benchmarks/bench_generate.py [--folder FOLDER] [--preset reddit-sim]

Prints one JSON object a line. Every step runs in a fresh process, whose peak resident memory
is its own; numba's kernels are compiled (to the cache on disk) before anything is timed. The
baseline of generating is numpy, on one thread, writing as many bytes of standard normals as
the graph's features have. FOLDER (default: the system's temporary folder) needs about 6 GB
free, and is left as it was.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import provenance
from fastgcn.data.generate_config import PRESETS, GenerateConfig

# 2.1 million rows of Reddit's 602 float32 features: 5.06 GB.
LARGE = GenerateConfig(
    name="large", nodes=2_100_000, edges=4_200_000, features=602, classes=41, homophily=0.76
)
TINY = GenerateConfig(name="tiny", nodes=1000, edges=5000, features=8, classes=4)
CONFIGS = {**PRESETS, LARGE.name: LARGE, TINY.name: TINY}


def peak_mb() -> float:
    """This process's peak resident memory; `ru_maxrss` would count its parent's in."""
    status = Path("/proc/self/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) / 1024, 1)


def write_normals(config: GenerateConfig, folder: Path) -> dict[str, float]:
    random = np.random.default_rng(0)
    start = time.perf_counter()
    with (folder / "normals").open("wb") as file:
        left = config.nodes * config.features
        while left > 0:
            block = random.standard_normal(min(left, 1 << 20), dtype=np.float32)
            file.write(block.data)
            left -= len(block)
    return {"seconds": round(time.perf_counter() - start, 2), "peak_mb": peak_mb()}


def generate_store(config: GenerateConfig, folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    from fastgcn.data.generate import generate

    generate(config, folder / config.name)
    return {"seconds": round(time.perf_counter() - start, 2), "peak_mb": peak_mb()}


def open_store(config: GenerateConfig, folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    import fastgcn

    opener = fastgcn.open_store
    imported = time.perf_counter()
    graph = opener(folder / config.name)
    opened = time.perf_counter()
    assert graph.n_nodes == config.nodes
    return {
        "seconds": round(opened - imported, 4),
        "import_seconds": round(imported - start, 3),
        "peak_mb": peak_mb(),
        "store_gb": round(sum(f.stat().st_size for f in (folder / config.name).iterdir()) / 1e9, 2),
    }


STEPS: dict[str, Callable[[GenerateConfig, Path], dict[str, float]]] = {
    "write_normals": write_normals,
    "generate": generate_store,
    "open": open_store,
}


def fresh(step: str, name: str, folder: Path) -> dict[str, float]:
    """The result of a step in a process of its own."""
    command = [sys.executable, __file__, "--folder", str(folder), "--preset", name, "--step", step]
    result: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return result


def report(**fields: Any) -> None:
    print(json.dumps(fields | {"where": provenance()}), flush=True)


def run(name: str, folder: Path) -> None:
    fresh("generate", TINY.name, folder)
    baseline = fresh("write_normals", name, folder)
    (folder / "normals").unlink()
    made = fresh("generate", name, folder)
    ratio = round(made["seconds"] / baseline["seconds"], 2)
    report(bench="write_normals", size_of=name, **baseline)
    report(bench="generate", config=name, ratio_to_write_normals=ratio, **made)
    fresh("generate", LARGE.name, folder)
    report(bench="open_store", config=LARGE.name, **fresh("open", LARGE.name, folder))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--preset", choices=sorted(CONFIGS), default="reddit-sim")
    parser.add_argument("--step", choices=sorted(STEPS), help="run one step in this process")
    options = parser.parse_args()
    if options.step:
        print(json.dumps(STEPS[options.step](CONFIGS[options.preset], options.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="bench-generate-", dir=options.folder) as folder:
        run(options.preset, Path(folder))


if __name__ == "__main__":
    main()
