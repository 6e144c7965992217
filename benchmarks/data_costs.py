"""Importing tables, generating a graph and opening a store: seconds and memory.

Every step runs in a fresh process, so that its peak of memory is its own, and kernels are compiled
before anything is timed. Importing is compared with scipy, which turns the same edges, already in
memory, from COO to canonical CSR. Generating is compared with numpy, which writes as many bytes of
standard normals as the graph's features have.
"""

import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from benchmarks.pages import Experiment, from_records, short
from benchmarks.processes import fresh
from benchmarks.results import Measurement, Record
from fastgcn.arrays import IntArray
from fastgcn.data.generate_config import PRESETS, GenerateConfig
from fastgcn.report.page import Table

# 2.1 million rows of Reddit's 602 float32 features: 5.06 GB.
LARGE = GenerateConfig(
    name="large", nodes=2_100_000, edges=4_200_000, features=602, classes=41, homophily=0.76
)
TINY = GenerateConfig(name="tiny", nodes=1000, edges=5000, features=8, classes=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Random tables that are imported; `ids`: counting from 0, shuffled, sparse or text."""

    edges: int = 20_000_000
    nodes: int = 1_000_000
    features: int = 8
    ids: str = "counting"
    memory: str = "1GB"  # what the import may use


def import_experiment(tables: Tables, repeats: int = 3) -> Experiment:
    """Importing a node and an edge table, as CSV and as Parquet."""
    measurements = {
        kind: Measurement(
            f"Importing {kind}",
            {"experiment": "import", "kind": kind, **asdict(tables)},
            partial(measure_import, kind, tables, repeats),
            ("fastgcn.data.tables",),
        )
        for kind in ("csv", "parquet")
    }

    def show(found: dict[str, Record]) -> list[Table]:
        figures = ("seconds", "ratio", "memory_ratio")
        rows = [(kind, *(short(each[name]) for name in figures)) for kind, each in found.items()]
        head = ("table", "s", "time / scipy", "peak memory / bytes of the store")
        what = f"{tables.edges:,} edges, {tables.nodes:,} nodes, ids {tables.ids}"
        return [Table(head, rows, f"Importing {what}")]

    return from_records("import", "Importing tables", measurements, show)


def measure_import(kind: str, tables: Tables, repeats: int) -> Record:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fresh(write_tables, folder, kind, tables)
        runs = [fresh(import_once, folder, kind, tables) for _ in range(repeats)]
        stored = sum(path.stat().st_size for path in (folder / "out").glob("*.npy"))
    scipy = [fresh(scipy_conversion, tables)["seconds"] for _ in range(repeats)]
    seconds = statistics.median(run["seconds"] for run in runs)
    peak = statistics.median(run["peak"] for run in runs)
    return {
        "seconds": seconds,
        "all_seconds": [run["seconds"] for run in runs],
        "peak_bytes": peak,
        "store_bytes": stored,
        "memory_ratio": peak / stored,
        "scipy_seconds": statistics.median(scipy),
        "ratio": seconds / statistics.median(scipy),
    }


def _random_ends(tables: Tables) -> IntArray:
    """(2, m) int64."""
    return np.random.default_rng(0).integers(0, tables.nodes, (2, tables.edges))


def write_tables(folder: Path, kind: str, tables: Tables) -> Record:
    rng, n = np.random.default_rng(1), tables.nodes
    # Counting ids are 0..n-1; those of the other kinds have to be looked up.
    own: Any = np.arange(n) if tables.ids == "counting" else rng.permutation(n)
    if tables.ids == "sparse":
        own = own * 1_000_003
    if tables.ids == "text":
        own = pa.array([f"node-{i}" for i in own])
    columns: dict[str, Any] = {
        "id": own,
        "label": rng.integers(0, 7, n),
        "split": rng.choice(["train", "val", "test"], n),
    }
    columns |= {f"f{j}": rng.random(n, dtype=np.float32) for j in range(tables.features)}
    ends = [pa.array(own).take(pa.array(end)) for end in _random_ends(tables)]
    edges = pa.table(ends, ["source", "target"])
    for name, table in (("nodes", pa.table(columns)), ("edges", edges)):
        write = csv.write_csv if kind == "csv" else parquet.write_table
        write(table, folder / f"{name}.{kind}")
    return {}


def scipy_conversion(tables: Tables) -> Record:
    """COO of both directions to canonical CSR."""
    from scipy.sparse import coo_array

    rows, columns = _random_ends(tables).astype(np.int32)
    both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    shape = tables.nodes, tables.nodes
    matrix = coo_array((np.ones(len(both[0]), np.float32), both), shape=shape)
    start = time.perf_counter()
    matrix.tocsr().sum_duplicates()
    return {"seconds": time.perf_counter() - start}


def import_once(folder: Path, kind: str, tables: Tables) -> Record:
    """Seconds of one import; kernels are compiled on tiny tables."""
    from fastgcn.data.tables import import_tables

    with tempfile.TemporaryDirectory(dir=folder) as tiny:
        few = Tables(edges=3, nodes=5, features=1, ids=tables.ids)
        write_tables(Path(tiny), kind, few)
        import_tables(f"{tiny}/nodes.{kind}", f"{tiny}/edges.{kind}", f"{tiny}/out")
    files = folder / f"nodes.{kind}", folder / f"edges.{kind}"
    start = time.perf_counter()
    import_tables(*files, folder / "out", force=True, memory=tables.memory)
    return {"seconds": time.perf_counter() - start}


def generate_experiment(
    folder: Path, config: GenerateConfig = PRESETS["reddit-sim"], large: GenerateConfig = LARGE
) -> Experiment:
    """Generating a graph of Reddit's size, and opening a store of 5 GB; `folder` needs 6 GB."""
    measurement = Measurement(
        f"Generating {config.name}",
        {"experiment": "generate", "config": config.name, "opened": large.name},
        partial(measure_generate, folder, config, large),
        ("fastgcn.data.generate", "fastgcn.data.store"),
    )

    def show(records: dict[str, Record]) -> list[Table]:
        found = records["generate"]
        titles = {
            "normals": "numpy writing as many normals as it has features, one thread",
            "generate": f"generating {config.name}",
            "open": f"opening a store of {short(found['open']['store_gb'])} GB",
        }
        rows = []
        for step, title in titles.items():
            seconds, peak = found[step]["seconds"], found[step]["peak"]
            times = short(seconds / found["normals"]["seconds"]) if step != "open" else ""
            rows.append((title, short(seconds), times, f"{peak / 1e6:,.0f}"))
        return [Table(("step", "s", "times", "peak memory, MB"), rows, "Generating and opening")]

    return from_records("generate", "Generating and opening", {"generate": measurement}, show)


def measure_generate(folder: Path, config: GenerateConfig, large: GenerateConfig) -> Record:
    with tempfile.TemporaryDirectory(prefix="bench-generate-", dir=folder) as name:
        scratch = Path(name)
        fresh(generate_store, TINY, scratch)
        normals = fresh(write_normals, config, scratch)
        (scratch / "normals").unlink()
        made = fresh(generate_store, config, scratch)
        fresh(generate_store, large, scratch)
        return {"normals": normals, "generate": made, "open": fresh(open_store, large, scratch)}


def write_normals(config: GenerateConfig, folder: Path) -> Record:
    random = np.random.default_rng(0)
    start = time.perf_counter()
    with (folder / "normals").open("wb") as file:
        left = config.nodes * config.features
        while left > 0:
            block = random.standard_normal(min(left, 1 << 20), dtype=np.float32)
            file.write(block.data)
            left -= len(block)
    return {"seconds": time.perf_counter() - start}


def generate_store(config: GenerateConfig, folder: Path) -> Record:
    from fastgcn.data.generate import generate

    start = time.perf_counter()
    generate(config, folder / config.name)
    return {"seconds": time.perf_counter() - start}


def open_store(config: GenerateConfig, folder: Path) -> Record:
    import fastgcn

    opener = fastgcn.open_store
    start = time.perf_counter()
    graph = opener(folder / config.name)
    seconds = time.perf_counter() - start
    assert graph.n_nodes == config.nodes
    files = (folder / config.name).iterdir()
    return {"seconds": seconds, "store_gb": sum(f.stat().st_size for f in files) / 1e9}
