"""Training on a graph whose features are larger than the memory that the process may take.

Every step runs in a process of its own that the system holds to the limit (RLIMIT_DATA: what it
allocates; pages of files, which the system drops when it needs memory, do not count):

* generate: the graph, 10 M nodes with 200 M stored edges and 128 features;
* train: one epoch with the best settings, `memory` being the limit, precomputation, validation
  and test included;
* fits: the same settings on a graph of the same kind with 0.5 M nodes, all in memory, no limit;
* steps: 500 steps of the former, in turns; cold-steps: every input row that is not in the
  process's memory comes from the disk, for the file is dropped from the system's cache again and
  again; fits-steps: 500 steps of the latter;
* predict: classes of all nodes to a Parquet file;
* tables, import: the same graph as two Parquet tables, and these imported again;
* dtype: test micro-F1 with ÂX in each precision, with the paper's settings on Pubmed and
  reddit-sim, over three seeds.

The folder needs 40 GB free; what is made there stays until it is deleted.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.pages import DASH, Experiment, from_records, short
from benchmarks.processes import fresh
from benchmarks.results import CPU_CODE, Measurement, Record
from fastgcn.data.generate_config import GenerateConfig
from fastgcn.memory import memory_bytes
from fastgcn.report.page import Table

if TYPE_CHECKING:
    from benchmarks.cases import Case
    from fastgcn import Graph, TrainConfig

KIND: dict[str, Any] = {"features": 128, "classes": 16, "max_degree": 10_000}
LARGE = GenerateConfig(name="large", nodes=10_000_000, edges=100_000_000, **KIND)
FITS = GenerateConfig(name="fits", nodes=500_000, edges=5_000_000, **KIND)

_TOLD = (
    "seconds_per_batch", "precompute_seconds", "sampling_seconds", "compute_seconds",
    "evaluation_seconds", "batches", "val_micro_f1", "test_micro_f1",
)  # fmt: skip
_TURNS = 10
_DROP_SECONDS = 0.05
_ROWS = 1 << 18  # of a table that are written together


def generate(folder: Path, _: str, config: GenerateConfig = LARGE) -> Record:
    from fastgcn.data.generate import generate as write

    write(config, folder / config.name, force=True)
    return {}


def settings(graph: "Graph", memory: str) -> "TrainConfig":
    from fastgcn.train.presets import best_preset

    return best_preset(graph).replace(epochs=1, memory=memory, device="cpu")


def train(folder: Path, memory: str, name: str = LARGE.name) -> Record:
    import fastgcn

    graph = fastgcn.open_store(folder / name)
    run_dir = folder / f"run-{name}-{time.time():.0f}"
    run = fastgcn.fit(graph, settings(graph, memory), run_dir=run_dir)
    return {key: run.metrics[key] for key in _TOLD}


def fits(folder: Path, _: str) -> Record:
    generate(folder, "", FITS)
    return train(folder, "auto", FITS.name)


def steps(folder: Path, memory: str, *, cold: bool = False, name: str = LARGE.name) -> Record:
    """Milliseconds a step: the median over turns, and all of them."""
    import fastgcn
    from benchmarks.network import steps as steps_of
    from benchmarks.timing import seconds_in_turns
    from fastgcn.backends.cpu import ready
    from fastgcn.machine import thread_count

    graph = fastgcn.open_store(folder / name)
    config = settings(graph, memory)
    dropped = dropped_from_cache(folder / name / "inputs") if cold else nullcontext()
    with thread_count(config.threads), dropped:
        sides = {"it": steps_of(ready(graph, config))}
        found = 1e3 * np.array(seconds_in_turns(sides, rounds=_TURNS, chunk_seconds=1)["it"])
    return {"ms_a_step": float(np.median(found)), "all": found.round(2).tolist()}


def predict(folder: Path, memory: str) -> Record:
    import fastgcn
    from fastgcn.infer.predict import predict_parts
    from fastgcn.infer.tables import prediction_columns, write_table

    run = fastgcn.Run.load(max(folder.glob(f"run-{LARGE.name}-*")))
    out, graph = folder / "predictions.parquet", fastgcn.open_store(folder / LARGE.name)
    parts = predict_parts(run, graph, memory=memory)
    write_table(out, (prediction_columns(ids.tolist(), rows, run) for ids, rows in parts))
    return {"file_bytes": out.stat().st_size}


def tables(folder: Path, _: str) -> Record:
    """The large graph as a node and an edge table, each undirected edge once."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    import fastgcn
    from fastgcn.arrays import forget

    graph = fastgcn.open_store(folder / LARGE.name)
    part = np.full(graph.n_nodes, "test", "<U5")
    part[graph.split.train], part[graph.split.val] = "train", "val"
    assert graph.labels is not None
    writers: dict[str, Any] = {}
    for start in range(0, graph.n_nodes, _ROWS):
        ids = np.arange(start, min(start + _ROWS, graph.n_nodes))
        rows = np.asarray(graph.features[ids])
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
        nodes = {"id": ids, "label": graph.labels[ids], "split": part[ids], "x": vectors}
        source = np.repeat(ids, np.diff(graph.indptr[start : ids[-1] + 2]))
        target = np.array(graph.indices[graph.indptr[start] : graph.indptr[ids[-1] + 1]])
        once = source < target
        edges = {"source": source[once], "target": target[once].astype(np.int64)}
        for name, columns in (("nodes", nodes), ("edges", edges)):
            table = pa.table(columns)
            if name not in writers:
                writers[name] = ParquetWriter(folder / f"{name}.parquet", table.schema)
            writers[name].write_table(table)
        forget(graph.features)
        forget(graph.indices)
    for writer in writers.values():
        writer.close()
    return {f"{name}_bytes": (folder / f"{name}.parquet").stat().st_size for name in writers}


def import_(folder: Path, _: str) -> Record:
    from fastgcn.data.tables import import_tables

    files = folder / "nodes.parquet", folder / "edges.parquet"
    import_tables(*files, folder / "imported", features="x", memory="1GB", force=True)
    return {}


@contextmanager
def dropped_from_cache(folder: Path) -> Iterator[None]:
    """Again and again, whatever the system holds of the files under a folder is dropped."""
    stopped = threading.Event()

    def drop() -> None:
        while not stopped.wait(_DROP_SECONDS):
            for path in folder.rglob("rows.bin"):
                file = os.open(path, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)

    thread = threading.Thread(target=drop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


STEPS: dict[str, Callable[[Path, str], Record]] = {
    "generate": generate,
    "train": train,
    "fits": fits,
    "steps": steps,
    "cold-steps": partial(steps, cold=True),
    "fits-steps": partial(steps, name=FITS.name),
    "predict": predict,
    "tables": tables,
    "import": import_,
}
UNLIMITED = ("fits", "fits-steps", "tables")


def experiments(folder: Path, limit: str) -> list[Experiment]:
    """A row a step, and the scores of each precision."""
    from benchmarks.accuracy import table_of  # not at the top, for a step pays for its imports

    steps = [_step(name, folder, limit) for name in STEPS]
    return [*steps, table_of("dtype", "Half precision", dtype_cases)]


def dtype_cases() -> Iterator["Case"]:
    """Trainings with ÂX in each precision."""
    from benchmarks.cases import OWN_SPLIT, Case
    from benchmarks.settings import paper_settings

    for data, dtype in product(("pubmed", "reddit-sim"), ("float32", "float16", "bfloat16")):
        config = paper_settings(data).replace(inputs_dtype=dtype, device="cpu")
        rates = (config.learning_rate,)
        yield Case(label=dtype, data=data, split=OWN_SPLIT, config=config, rates=rates, seeds=3)


def _step(name: str, folder: Path, limit: str) -> Experiment:
    def measure() -> Record:
        folder.mkdir(parents=True, exist_ok=True)
        free = name in UNLIMITED
        memory = "auto" if free else limit
        return fresh(STEPS[name], folder, memory, limit=None if free else memory_bytes(limit))

    def show(records: dict[str, Record]) -> list[Table]:
        found = records[name]
        cells = [short(found.get("seconds")), short(found.get("ms_a_step"))]
        peaks = [found.get("peak"), found.get("anonymous")]
        cells += [DASH if n is None else f"{n / 1e9:.1f}" for n in peaks]
        head = ("step", "s", "ms a step", "peak, GB", "without files, GB")
        return [Table(head, [(name, *cells)], f"{name}, held to {limit}")]

    key = {"figure": "out of core", "step": name, "limit": limit, "nodes": LARGE.nodes}
    found = Measurement(f"Out of core: {name}", key, measure, CPU_CODE)
    return from_records(name, name, {name: found}, show)
