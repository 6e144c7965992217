"""Valid inputs of every format, as small as they can be: what the cases are made from.

They are the same whenever they are made, so that a case is known by its target and number.
"""

import contextlib
import hashlib
import io
import json
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from scipy.sparse import csr_array, csr_matrix

from fastgcn import Graph, TrainConfig, fit, save
from fastgcn.data.layout import combined
from fastgcn.data.shards import shard
from fastgcn.train.run import RunFolder
from tests.data.readers import test_graphsage, test_ogb
from tests.data.readers.matrix_files import (
    write_benchmark,
    write_dgl,
    write_fastgcn,
    write_saint,
)
from tests.data.readers.python2_pickle import array_pickle, lists_pickle, matrix_pickle
from tests.data.readers.toy import multilabel, toy, write_trio
from tests.fuzz.case import read_tree
from tests.tables import EDGES, NODES, write

Corpus = dict[str, dict[str, bytes]]
"""The files of each valid input, by the input's name."""


def _names() -> list[str]:
    return [f"n{i}" for i in range(8)]


def graphs() -> dict[str, Graph]:
    """Every kind of graph that a store can hold: 8 nodes, 3 features, 3 classes."""
    features = toy().features
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 8, (2, 14))
    weights = rng.integers(1, 5, 14) / 2
    named = toy(node_ids=_names(), class_names=["x", "y", "z"], feature_names=["a", "b", "c"])
    other = Graph.from_edges(
        source,
        target,
        weights=weights,
        directed=True,
        features=csr_array(features),
        labels=[0, 1, 2, 0, 1, 2, 0, -1],
        split=toy().split,
        node_ids=list(range(100, 108)),
        name="other",
    )
    return {"plain": toy(), "named": named, "sparse": other, "several": multilabel()}


def settings(**changes: Any) -> TrainConfig:
    """Two layers, few draws, one epoch, one thread."""
    base: dict[str, Any] = {"hidden": 4, "samples": 2, "batch_size": 4, "epochs": 1, "threads": 1}
    return TrainConfig(device="cpu", **(base | changes)).complete()


def _stores(folder: Path) -> None:
    for name, graph in graphs().items():
        save(graph, folder / name)


def _shards(folder: Path) -> None:
    for name, graph in graphs().items():
        shard(graph, 2 if name == "plain" else 3, folder / name, by="nodes")


def _runs(folder: Path) -> None:
    """Finished runs, and one that was interrupted; times are made equal."""
    known = graphs()
    for name in ("named", "several"):
        fit(known[name], settings(averaging=0.5), run_dir=folder / name)
    started = folder / "plain"
    fit(known["plain"], settings(epochs=2, norm="batch", skip=True, bias=True), run_dir=started)
    (started / "result.json").unlink()
    (started / "model.safetensors").unlink()
    config = json.loads((started / "config.json").read_text())
    config["config"]["epochs"] = 4
    (started / "config.json").write_text(json.dumps(config))
    for run in folder.iterdir():
        _without_times(run)


def _without_times(run: Path) -> None:
    opened = RunFolder.open(run)
    history = opened.read_history(len((run / "metrics.jsonl").read_bytes().splitlines()))
    for record in history:
        record.update({name: 0.25 for name in record if "seconds" in name})
    opened.write_history(history)
    checkpoint = opened.load_checkpoint()
    if checkpoint is not None:
        checkpoint.progress["seconds"] = dict.fromkeys(checkpoint.progress["seconds"], 0.25)
        opened.save_checkpoint(checkpoint)
    result = run / "result.json"
    if result.exists():
        metrics = json.loads(result.read_bytes())
        metrics.update({name: 0.25 for name in metrics if "seconds" in name})
        result.write_text(json.dumps(metrics))


def _in_folders(*writers: Callable[[Path], object]) -> Callable[[Path], None]:
    """Each writer gets a folder of its own."""

    def write_all(folder: Path) -> None:
        for number, writer in enumerate(writers):
            own = folder / str(number)
            own.mkdir()
            writer(own)

    return write_all


def _planetoid(folder: Path) -> None:
    """Six nodes with rows in `allx`, two of the test part; node 6 has no row."""
    graph = toy()
    features = csr_array(np.asarray(graph.features, np.float32))
    assert graph.labels is not None
    one_hot = (graph.labels[:, None] == np.arange(3)).astype(np.int32)
    lists = {
        node: graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
        for node in range(8)
    }
    parts = {"x": slice(0, 3), "tx": slice(6, 8), "allx": slice(0, 6)}
    for part, rows in parts.items():
        (folder / f"ind.toy.{part}").write_bytes(matrix_pickle(features[rows]))
        labels = "y" if part == "x" else part.replace("x", "y")
        (folder / f"ind.toy.{labels}").write_bytes(array_pickle(one_hot[rows]))
    (folder / "ind.toy.graph").write_bytes(lists_pickle(lists))
    (folder / "ind.toy.test.index").write_text("7\n6\n")


def _planetoid_3(folder: Path) -> None:
    """The same objects as Python 3 pickles them."""
    _planetoid(folder)
    graph = toy()
    lists: dict[int, list[int]] = defaultdict(list)
    for node in range(8):
        lists[node] = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
    (folder / "ind.toy.graph").write_bytes(pickle.dumps(lists, protocol=4))
    rows = csr_matrix(np.asarray(graph.features, np.float32)[:6])
    (folder / "ind.toy.allx").write_bytes(pickle.dumps(rows, protocol=2))


def _graphsaint(folder: Path) -> None:
    write_saint(folder, toy())


def _graphsaint_several(folder: Path) -> None:
    write_saint(folder, multilabel())


def _graphsage(folder: Path) -> None:
    test_graphsage.write(folder, toy())


def _graphsage_ids(folder: Path) -> None:
    test_graphsage.write(folder, multilabel(), links="id")


def _ogb(folder: Path) -> None:
    test_ogb.write(folder, toy())


def _benchmark(folder: Path) -> None:
    write_benchmark(folder, toy(), node_names=None, class_names=None)


def _benchmark_names(folder: Path) -> None:
    write_benchmark(folder, toy(), node_names=None, class_names=np.array(["x", "y", "z"]))


_LISTS = {
    "id": [1, 2, 3, 4],
    "label": [["x"], ["x", "y"], [], ["y"]],
    "split": ["train", "val", "test", "train"],
    "rows": [[0.5, 1.0], [0.0, 2.0], [1.0, 0.0], [3.0, 1.0]],
}
_WEIGHTED = {"source": [1, 2, 3], "target": [2, 3, 4], "weight": [0.5, 1.0, 2.0]}


def _csv(folder: Path) -> None:
    write(folder / "nodes.csv", NODES)
    write(folder / "edges.csv", EDGES)


def _csv_numbers(folder: Path) -> None:
    """Whole numbers as ids, columns of labels, weights; one table compressed."""
    text = "id,label,split,f\n10,0,train,1\n11,1,val,2.5\n12,0,test,-3e2\n13,,,0\n"
    (folder / "nodes.csv").write_text(text)
    write(folder / "edges.csv.gz", {"source": [10, 11], "target": [11, 12], "weight": [1, 2]})


def _parquet(folder: Path) -> None:
    write(folder / "nodes.parquet", NODES)
    write(folder / "edges.parquet", EDGES)


def _parquet_lists(folder: Path) -> None:
    write(folder / "nodes.parquet", _LISTS)
    write(folder / "edges.parquet", _WEIGHTED)


def _new_nodes(folder: Path) -> None:
    (folder / "nodes.csv").write_text("id,a,b,c\nnew,1,2,3\nnewer,0,0,1\n")
    (folder / "edges.csv").write_text("source,target\nnew,n0\nnewer,new\nnewer,n7\n")


def _new_nodes_parquet(folder: Path) -> None:
    columns = {"id": ["new", "newer"], "a": [1.0, 0.0], "b": [2.0, 0.0], "c": [3.0, 1.0]}
    write(folder / "nodes.parquet", columns)
    write(folder / "edges.parquet", {"source": ["new", "newer"], "target": ["n0", "new"]})


_TOML = """\
# Settings of a run.
preset = "paper"
seed = 3
hidden = [16, 8]
dropout = 0.5
samples = "auto"
learning_rate = 1e-2
inductive = false
device = "cpu"
memory = "2GB"
distribution = "flat"
power = 2.0
fanouts = [10, 25]
norm = 'layer'
"""


def _settings(folder: Path) -> None:
    (folder / "settings.toml").write_text(_TOML)
    (folder / "set.txt").write_text("hidden=64\nsamples=3\nnorm=layer\ndropout=0.5\nbias=true\n")
    (folder / "config.json").write_text(json.dumps(settings().to_dict()))


def _nodes(folder: Path) -> None:
    """A folder for each graph."""
    for name, text in {"plain": "0,3,7", "named": "n0,n1,n7", "sparse": "100,107"}.items():
        (folder / name).mkdir()
        (folder / name / "nodes.txt").write_text(text)


BUILDERS: dict[str, Callable[[Path], None]] = {
    "store": _stores,
    "shards": _shards,
    "run": _runs,
    "npz": _in_folders(
        lambda folder: write_trio(folder, toy()), lambda folder: write_trio(folder, multilabel())
    ),
    "gnn-benchmark": _in_folders(_benchmark, _benchmark_names),
    "graphsaint": _in_folders(_graphsaint, _graphsaint_several),
    "reddit": _in_folders(
        lambda folder: write_fastgcn(folder, toy()), lambda folder: write_dgl(folder, toy())
    ),
    "planetoid": _in_folders(_planetoid, _planetoid_3),
    "ogb": _in_folders(_ogb),
    "graphsage": _in_folders(_graphsage, _graphsage_ids),
    "csv": _in_folders(_csv, _csv_numbers),
    "parquet": _in_folders(_parquet, _parquet_lists),
    "new-nodes": _in_folders(_new_nodes, _new_nodes_parquet),
    "settings": _in_folders(_settings),
    "nodes": _nodes,
}


def corpus(target: str) -> Corpus:
    """The valid inputs of a target."""
    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as folder:
        BUILDERS[target](Path(folder))
        return {own.name: read_tree(own) for own in sorted(Path(folder).iterdir())}


def without_sums(_: Mapping[str, bytes], changed: dict[str, bytes]) -> None:
    """Take the checksums out of weights, as files of earlier versions have none."""
    for name in [name for name in changed if name.endswith(".safetensors")]:
        data = changed[name]
        end = 8 + int.from_bytes(data[:8], "little")
        with contextlib.suppress(Exception):
            header = json.loads(data[8:end])
            del header["__metadata__"]["sha256"]
            text = json.dumps(header).encode()
            changed[name] = len(text).to_bytes(8, "little") + text + data[end:]


def agree(tree: Mapping[str, bytes], changed: dict[str, bytes]) -> None:
    """Make manifests describe the changed arrays beside them: types, sizes, sums."""
    for name in [name for name in changed if name.endswith(".npy")]:
        folder, _, file = name.rpartition("/")
        for manifest in ("graph.json", "part.json"):
            path = f"{folder}/{manifest}".lstrip("/")
            if path not in tree:
                continue
            # What is no array or no manifest any more stays as it is.
            with contextlib.suppress(Exception):
                content = json.loads(changed.get(path, tree[path]))
                array = file.removesuffix(".npy")
                content["arrays"][array] |= _described(changed[name])
                if manifest == "graph.json":
                    _recount(content, array)
                changed[path] = json.dumps(content).encode()


def _recount(manifest: dict[str, Any], array: str) -> None:
    """Make the counts and the fingerprint of a store agree with its arrays."""
    arrays = manifest["arrays"]
    manifest["fingerprint"] = combined({name: said["sha256"] for name, said in arrays.items()})
    length = arrays[array]["shape"][0]
    if array == "indptr":
        manifest["nodes"] = length - 1
    elif array == "indices":
        manifest["stored_edges"] = length


def _described(data: bytes) -> dict[str, Any]:
    """What a manifest says about the array in a `.npy` file."""
    said: dict[str, Any] = {"sha256": hashlib.sha256(data).hexdigest()}
    with contextlib.suppress(Exception):
        file = io.BytesIO(data)
        npy.read_magic(file)
        shape, _, dtype = npy.read_array_header_1_0(file)
        said |= {"shape": list(shape), "dtype": dtype.str}
    return said
