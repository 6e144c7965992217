"""Training on a graph whose features are larger than the memory that the process may take.

    python benchmarks/bench_out_of_core.py FOLDER [--limit 4GB] [--only STEP ...]

Every step runs in a process of its own that the system holds to the limit (RLIMIT_DATA: what it
allocates; pages of files, which the system drops when it needs memory, do not count), and whose
peaks are told: VmHWM, all resident pages, those of files too; RssAnon, without these; VmData,
what the limit is on. Steps that are in the results already are not done again.

* generate: the graph, 10 M nodes with 200 M stored edges and 128 features;
* train: one epoch with the best settings, `memory` being the limit, precomputation, validation
  and test included;
* fits: the same settings on a graph of the same kind with 0.5 M nodes, all in memory, no limit;
* steps: 500 steps of the former, in chunks; cold-steps: every input row that is not in the
  process's memory comes from the disk, for the file is dropped from the system's cache again and
  again; half-steps, half-cold-steps: with ÂX in float16; fits-steps: 500 steps of the latter;
* predict: classes of all nodes to a Parquet file;
* tables, import: the same graph as two Parquet tables, and these imported again;
* dtype: test micro-F1 with ÂX in each precision, with the paper's settings on Pubmed and
  reddit-sim, over three seeds.

FOLDER needs 40 GB free; what is made there stays until it is deleted.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain, count, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results import Record, Results
from benchmarks.speed.training_process import STATUS, AnonymousPeak, status_bytes
from fastgcn.data.generate_config import GenerateConfig
from fastgcn.memory import memory_bytes

if TYPE_CHECKING:
    from fastgcn import Graph, TrainConfig

RESULTS = Path(__file__).parent.parent / "results" / "scale.jsonl"
KIND: dict[str, Any] = {"features": 128, "classes": 16, "max_degree": 10_000}
LARGE = GenerateConfig(name="large", nodes=10_000_000, edges=100_000_000, **KIND)
FITS = GenerateConfig(name="fits", nodes=500_000, edges=5_000_000, **KIND)

TOLD = (
    "seconds_per_batch",
    "precompute_seconds",
    "sampling_seconds",
    "compute_seconds",
    "evaluation_seconds",
    "batches",
    "val_micro_f1",
    "test_micro_f1",
)

_STEPS, _CHUNK = 500, 50
_DROP_SECONDS = 0.05
_ROWS = 1 << 18  # of a table that are written together


def generate(folder: Path, _: str, config: GenerateConfig = LARGE) -> Record:
    from fastgcn.data.generate import generate as write

    write(config, folder / config.name, force=True)
    return {}


def settings(graph: "Graph", memory: str, dtype: str) -> "TrainConfig":
    from fastgcn.train.presets import best_preset

    return best_preset(graph).replace(epochs=1, memory=memory, inputs_dtype=dtype, device="cpu")


def train(folder: Path, memory: str, *, name: str = LARGE.name) -> Record:
    import fastgcn

    graph = fastgcn.open_store(folder / name)
    run_dir = folder / f"run-{name}-{time.time():.0f}"
    run = fastgcn.fit(graph, settings(graph, memory, "float32"), run_dir=run_dir)
    return {key: run.metrics[key] for key in TOLD}


def fits(folder: Path, _: str) -> Record:
    generate(folder, "", FITS)
    return train(folder, "auto", name=FITS.name)


def steps(
    folder: Path, memory: str, *, cold: bool = False, dtype: str = "float32", name: str = LARGE.name
) -> Record:
    """Milliseconds a step, the median over chunks of steps and all of them."""
    import fastgcn
    from fastgcn.backends.cpu import ready
    from fastgcn.machine import thread_count

    graph = fastgcn.open_store(folder / name)
    config = settings(graph, memory, dtype)
    found = []
    with thread_count(config.threads):
        trainer = ready(graph, config)
        batches = chain.from_iterable(trainer.minibatches.shuffled() for _ in count())
        trainer.train_on(islice(batches, _CHUNK))
        with dropped_from_cache(folder / name / "inputs") if cold else nullcontext():
            for _ in range(_STEPS // _CHUNK):
                start = time.perf_counter()
                trainer.train_on(islice(batches, _CHUNK))
                found.append((time.perf_counter() - start) / _CHUNK * 1e3)
    return {"ms_a_step": float(np.median(found)), "all": [round(each, 2) for each in found]}


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
    from fastgcn.scratch import forget

    graph = fastgcn.open_store(folder / LARGE.name)
    part = np.full(graph.n_nodes, "test", "<U5")
    part[graph.split.train], part[graph.split.val] = "train", "val"
    assert graph.labels is not None
    writers: dict[str, Any] = {}
    for start in range(0, graph.n_nodes, _ROWS):
        ids = np.arange(start, min(start + _ROWS, graph.n_nodes))
        rows = np.asarray(graph.features[ids])
        width = rows.shape[1]
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), width)
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
    "cold-steps": lambda folder, memory: steps(folder, memory, cold=True),
    "half-steps": lambda folder, memory: steps(folder, memory, dtype="float16"),
    "half-cold-steps": lambda folder, memory: steps(folder, memory, dtype="float16", cold=True),
    "fits-steps": lambda folder, _: steps(folder, "auto", name=FITS.name),
    "predict": predict,
    "tables": tables,
    "import": import_,
}
UNLIMITED = ("fits", "fits-steps", "tables")


def limited(step: str, folder: Path, limit: str) -> Record:
    """A step in this process: what it tells, its seconds and the peaks of its memory."""
    if step not in UNLIMITED:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes(limit),) * 2)
    start = time.perf_counter()
    with AnonymousPeak() as anonymous:
        told = STEPS[step](folder, limit)
    return told | {
        "seconds": round(time.perf_counter() - start, 1),
        "VmHWM": status_bytes("VmHWM"),
        "RssAnon": anonymous.bytes,
    }


def fresh(step: str, folder: Path, limit: str) -> Record:
    command = [sys.executable, __file__, str(folder), "--limit", limit, "--step", step]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: Record = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_dtypes(results: Results) -> None:
    import fastgcn
    from fastgcn.train.presets import paper_preset

    for data in ("pubmed", "reddit-sim"):
        graph = fastgcn.load(data)
        for seed, dtype in product(range(3), ("float32", "float16", "bfloat16")):
            config = paper_preset(data).replace(seed=seed, inputs_dtype=dtype, device="cpu")
            key = {"figure": "inputs dtype", "data": data, "config": config.to_dict()}
            found = results.measure(key, partial(_scores, graph, config))
            print(data, dtype, seed, found, flush=True)


def _scores(graph: "Graph", config: "TrainConfig") -> Record:
    import fastgcn

    metrics = fastgcn.fit(graph, config).metrics
    return {key: metrics[key] for key in ("val_micro_f1", "test_micro_f1", "best_epoch")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where graphs and runs go")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that results go to")
    parser.add_argument("--limit", default="4GB", help="what a process may allocate")
    parser.add_argument("--only", nargs="+", choices=[*STEPS, "dtype"], help="these steps alone")
    parser.add_argument("--step", choices=sorted(STEPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not STATUS.exists():
        parser.error(f"this needs {STATUS}, which Linux has")
    if options.step:
        print(json.dumps(limited(options.step, options.folder, options.limit)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    results = Results(options.results)
    for step in options.only or [*STEPS, "dtype"]:
        if step == "dtype":
            measure_dtypes(results)
            continue
        key = {"figure": "out of core", "step": step, "limit": options.limit, "nodes": LARGE.nodes}
        found = results.measure(key, partial(fresh, step, options.folder, options.limit))
        print(step, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
