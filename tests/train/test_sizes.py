"""Sizes that no machine has are refused in a sentence, before anything is allocated."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn import (
    FastGCNClassifier,
    GenerateConfig,
    Graph,
    TrainConfig,
    embed,
    fit,
    generate,
    load,
    predict,
)
from fastgcn.data.store import save
from fastgcn.errors import InputError
from fastgcn.features.plan import check_device_memory, check_memory
from fastgcn.memory import check_room
from tests.communities import communities, quick

# Runs lines of Python under a limit of 1 GB above what the imports take. Prints the error of each.
UNDER_A_LIMIT = """
import json, resource, sys, time
import fastgcn, fastgcn.cli, fastgcn.estimator, fastgcn.data.info, fastgcn.diagnose.diagnosis
from fastgcn import FastGCNClassifier, fit
from fastgcn.memory import _line_bytes
from pathlib import Path
from tests.communities import communities, quick

def command(*words):
    sys.argv = ["fastgcn", *words]
    try:
        fastgcn.cli.main()
    except SystemExit as stop:
        raise fastgcn.FastGCNError(f"exit {stop.code}") from None

graph = communities(class_names=None)
fit(graph, quick())
limit = _line_bytes(Path("/proc/self/status"), "VmSize") + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for line in json.loads(sys.argv[1]):
    start, said = time.process_time(), ""
    try:
        exec(line)
    except fastgcn.FastGCNError as error:
        said = str(error)
    print(json.dumps([said, time.process_time() - start]), flush=True)
"""


def under_a_limit(*lines: str) -> list[str]:
    """The sentence that each line of Python ends in; none takes a second or 1 GB."""
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, json.dumps(lines)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert max(seconds for _, seconds in found) < 2.0, "of a processor, which others may share"
    return [said for said, _ in found]


def with_sentinel(folder: Path) -> Path:
    """A store whose labels have a marker of 2^31 - 1 in a test node, which names no class."""
    graph = communities(class_names=None)
    assert graph.labels is not None
    labels = graph.labels.copy()
    labels[graph.split.test[0]] = 2**31 - 1
    save(graph, folder)
    np.save(folder / "labels.npy", labels)
    manifest = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps(manifest | {"classes": 2**31}))
    return folder


def test_widths_and_labels_that_no_machine_has(tmp_path: Path) -> None:
    store = str(with_sentinel(tmp_path / "store"))
    wide = under_a_limit(
        "fit(graph, quick(hidden=2**31))",
        "fit(graph, hidden=2**31)",
        "fit(graph, hidden=2**31, samples='auto')",
        "FastGCNClassifier(hidden=2**31).fit(graph)",
        "fastgcn.diagnose.diagnosis.diagnose(graph, quick(hidden=2**31))",
        "fit(graph, quick(method='graphsage-gcn', precompute=False, normalization='row', "
        "fanouts=(5, 2**31)))",
        f"fit(fastgcn.open_store({store!r}))",
        f"FastGCNClassifier().fit(fastgcn.open_store({store!r}))",
        f"fastgcn.data.info.describe(fastgcn.open_store({store!r}))",
        f"command('info', {store!r})",
        f"command('train', {store!r})",
        f"command('diagnose', {store!r})",
        "command('train', 'digits', '--hidden', str(2**31))",
        "fit(graph, quick(batch_size=2**62))",
    )
    for said in wide[:5]:
        assert "training on communities takes" in said
        assert "lower hidden" in said
    assert "lower fanouts or batch_size: the batches take" in wide[5]
    for said in wide[6:9]:
        assert "got 2147483647 in a graph of 60 nodes; number the classes 0, 1, 2" in said
    assert wide[9:13] == ["exit 1"] * 4
    assert wide[13] == "", "a batch is at most all training nodes"


def test_labels_that_are_no_numbers_of_classes() -> None:
    graph = communities(class_names=None)
    labels = np.array(graph.labels)
    labels[4] = 2**31 - 1
    sentence = "labels must be class ids from 0, got 2147483647 in a graph of .* nodes; number"
    with pytest.raises(InputError, match=sentence):
        communities(class_names=None, labels=labels)
    with pytest.raises(InputError, match=sentence):
        FastGCNClassifier(graph=graph).fit([0, 1], [0, 2**31 - 1])
    assert communities(class_names=None, labels=np.minimum(labels, 9_999)).n_classes == 10_000


@pytest.mark.parametrize("size", [2**63, 2**64, 10**30, 10**5_000], ids=["63", "64", "30", "5000"])
@pytest.mark.parametrize("name", ["hidden", "batch_size", "samples", "epochs", "learning_rate"])
def test_a_setting_fits_into_64_bits(name: str, size: int) -> None:
    with pytest.raises(InputError, match=f"{name} must fit into 64 bits, got"):
        TrainConfig(**{name: size})  # type: ignore[arg-type]


def test_threads_are_bounded() -> None:
    with pytest.raises(InputError, match="threads must be at least 0 and at most 4096, got 10"):
        fit(communities(), threads=10**6)


@pytest.mark.parametrize(
    ("settings", "largest"),
    [
        ({"hidden": (10**6, 10**6)}, "lower hidden: the network's weights and their moments take"),
        ({"hidden": 10**9}, "lower hidden, or lower samples or batch_size: the batches take"),
        ({"method": "gcn", "hidden": 10**9}, "lower hidden"),
    ],
    ids=str,
)
@pytest.mark.parametrize("memory", ["auto", "4GB"])
def test_the_largest_item_is_named(settings: dict[str, Any], largest: str, memory: str) -> None:
    begin = "memory = 4.0 GB is not enough to train on" if memory == "4GB" else "training on"
    with pytest.raises(InputError, match=f"{begin} communities.*{largest}"):
        check_memory(communities(), quick(memory=memory, **settings))


def test_many_label_columns_and_classes_are_named() -> None:
    graph = communities()
    columns = graph._replaced(labels=np.broadcast_to(np.False_, (60, 10**9)), class_names=None)
    with pytest.raises(InputError, match="use fewer than 1,000,000,000 classes, or lower"):
        check_memory(columns, quick())


def test_several_processes_share_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    config = quick(hidden=10**6)
    monkeypatch.setattr("fastgcn.memory.available_memory", lambda: 10**9)
    check_memory(communities(), config, shares=2)
    with pytest.raises(InputError, match=r"takes \d\.\d GB of memory, and 1\.0 GB are free here"):
        check_memory(communities(), config, shares=2, here=2)


def test_a_gpu_is_asked_for_its_own_memory() -> None:
    check_device_memory(communities(), quick(), 10**8)
    with pytest.raises(InputError, match=r"takes 1,\d\d\d.\d GB of the GPU's memory, and 150.0 GB"):
        check_device_memory(communities(), quick(hidden=2**31), 150 * 10**9)


def test_a_result_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fit(communities(), quick())
    monkeypatch.setattr("fastgcn.memory.available_memory", lambda: 10)
    monkeypatch.setattr("fastgcn.memory._LITTLE", 0)
    for use in (predict, embed):
        with pytest.raises(InputError, match="the result takes 0 MB of memory, and 0 MB are free"):
            use(run, communities())


def test_what_is_little_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastgcn.memory.available_memory", lambda: 0)
    check_room(1 << 20, "this", "do that")


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"nodes": 10**11, "edges": 10**12}, "generating 100,000,000,000 nodes of 4 features take"),
        ({"nodes": 10**30, "edges": 10**31}, "nodes must be below 2\\^60, got"),
        ({"features": 10**12}, "generating 1,000 nodes of 1,000,000,000,000 features takes"),
        ({"nodes": 10**7, "edges": 10**8, "classes": 10**6}, "a graph of 1,000,000 classes takes"),
    ],
    ids=str,
)
def test_graphs_that_no_machine_has_are_not_generated(
    sizes: dict[str, int], sentence: str, tmp_path: Path
) -> None:
    usual: dict[str, Any] = {"nodes": 1_000, "edges": 3_000, "features": 4, "classes": 3}
    with pytest.raises(InputError, match=sentence):
        generate(GenerateConfig(**(usual | sizes)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_limit_of_the_process_counts() -> None:
    (said,) = under_a_limit("fit(graph, quick(hidden=3 * 10**6, samples=30))")
    assert "takes" in said
    assert "are free here" in said


def test_ordinary_graphs_are_not_refused() -> None:
    graph: Graph = load("digits")
    check_memory(graph, quick(hidden=(512, 512), samples=(400, 400)))
