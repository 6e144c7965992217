"""How long it takes to import tables, and how much memory, against scipy in memory.

Random edges, in CSV and Parquet files, are imported to a store by a fresh
process, which has compiled its kernels on tiny tables before. The time to compare with is
that of scipy for the same edges, both directions, from COO to canonical CSR in memory. Prints
a JSON line a result; `ratio` is the import's time by scipy's, `memory_ratio` the process's
peak resident memory by the bytes of the store.

    python benchmarks/bench_import.py --edges 20000000 --nodes 1000000
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from scipy.sparse import coo_array

from benchmarks.results import provenance
from fastgcn.arrays import IntArray
from fastgcn.data.tables import import_tables

P = ParamSpec("P")
T = TypeVar("T")


def fresh(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call in a new process, so that the peak memory of one step is not that of another."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


def random_ends(n_edges: int, n: int) -> IntArray:
    """(2, m) int64."""
    return np.random.default_rng(0).integers(0, n, (2, n_edges))


def write_tables(folder: Path, kind: str, n_edges: int, n: int, n_features: int, ids: str) -> None:
    rng = np.random.default_rng(1)
    # Counting ids are 0..n-1; those of the other kinds have to be looked up.
    own: Any = np.arange(n) if ids == "counting" else rng.permutation(n)
    if ids == "sparse":
        own = own * 1_000_003
    if ids == "text":
        own = pa.array([f"node-{i}" for i in own])
    columns: dict[str, Any] = {
        "id": own,
        "label": rng.integers(0, 7, n),
        "split": rng.choice(["train", "val", "test"], n),
    }
    for j in range(n_features):
        columns[f"f{j}"] = rng.random(n, dtype=np.float32)
    ends = pa.table(
        [pa.array(own).take(pa.array(end)) for end in random_ends(n_edges, n)],
        ["source", "target"],
    )
    for name, table in (("nodes", pa.table(columns)), ("edges", ends)):
        path = folder / f"{name}.{kind}"
        if kind == "csv":
            pa.csv.write_csv(table, path)
        else:
            pa.parquet.write_table(table, path)


def scipy_seconds(n_edges: int, n: int, repeats: int) -> float:
    """COO of both directions to canonical CSR."""
    rows, columns = random_ends(n_edges, n).astype(np.int32)
    both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    matrix = coo_array((np.ones(len(both[0]), np.float32), both), shape=(n, n))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        matrix.tocsr().sum_duplicates()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def import_once(folder: Path, kind: str, ids: str, memory: str) -> tuple[float, int]:
    """Seconds and peak resident bytes of one import; kernels are compiled on tiny tables."""
    with tempfile.TemporaryDirectory(dir=folder) as tiny:
        write_tables(Path(tiny), kind, 3, 5, 1, ids)
        import_tables(f"{tiny}/nodes.{kind}", f"{tiny}/edges.{kind}", f"{tiny}/out")
    nodes, edges = folder / f"nodes.{kind}", folder / f"edges.{kind}"
    start = time.perf_counter()
    import_tables(nodes, edges, folder / "out", force=True, memory=memory)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return seconds, peak * (1 if sys.platform == "darwin" else 1024)


def measure(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = options.edges, options.nodes, options.features
        fresh(write_tables, folder, kind, *sizes, options.ids)
        runs = [
            fresh(import_once, folder, kind, options.ids, options.memory)
            for _ in range(options.repeats)
        ]
        stored = sum(path.stat().st_size for path in (folder / "out").glob("*.npy"))
    seconds, peaks = zip(*runs, strict=True)
    peak = statistics.median(peaks)
    return {
        "seconds": statistics.median(seconds),
        "all_seconds": seconds,
        "peak_bytes": peak,
        "store_bytes": stored,
        "memory_ratio": peak / stored,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of importing tables.")
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--ids", choices=["counting", "shuffled", "sparse", "text"])
    parser.set_defaults(ids="counting")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="1GB", help="what the import may use")
    parser.add_argument("--kinds", nargs="+", default=["csv", "parquet"])
    options = parser.parse_args()
    scipy = fresh(scipy_seconds, options.edges, options.nodes, options.repeats)
    keys = ("edges", "nodes", "features", "ids", "memory")
    settings = {key: getattr(options, key) for key in keys}
    for kind in options.kinds:
        result = measure(kind, options)
        result |= {"scipy_seconds": scipy, "ratio": result["seconds"] / scipy}
        line = {"bench": "import", "kind": kind, **settings, **result, "where": provenance()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
