"""Training and prediction in less memory than they would like to have, with the same results."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastgcn.features.propagate
import fastgcn.infer.predict
from fastgcn import Graph, Run, embed, evaluate, fit, open_store, predict, resume, save
from fastgcn.backends.cpu import ready
from fastgcn.data.generate import GenerateConfig, generate
from fastgcn.features.plan import Budget, training_demand
from tests.cli_runner import run_cli
from tests.communities import communities, quick, weights_of, without_times

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "three layers": {"hidden": (8, 8)},
    "own rows": {"hidden": (8, 8), "skip": True, "input_skip": True, "feature_scaling": "standard"},
    "jumping": {"hidden": (8, 8), "jumping": "concat", "feature_scaling": "row"},
    "best": {"distribution": "ladies", "draws": "stratified", "self_term": "exact"},
    "nothing precomputed": {"precompute": False},
    "transductive": {"inductive": False},
    "joined": {"evaluation_graph": "joined"},
    "neighbours": {
        "method": "graphsage-mean",
        "precompute": False,
        "normalization": "neighbors",
        "fanouts": (3, 3),
    },
}


@pytest.fixture
def store(tmp_path: Path) -> Graph:
    save(communities(weighted=True), tmp_path / "store")
    return open_store(tmp_path / "store")


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that can be on disk is."""
    monkeypatch.setattr(Budget, "left", lambda _: 0)


def same(got: Run, expected: Run) -> None:
    assert weights_of(got.model) == weights_of(expected.model)
    for one, other in zip(got.history, expected.history, strict=True):
        assert one["train_loss"] == other["train_loss"]
        assert one["val_loss"] == pytest.approx(other["val_loss"], rel=1e-5)
    assert got.metrics["test_loss"] == pytest.approx(expected.metrics["test_loss"], rel=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_from_disk_as_from_memory(
    name: str, store: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = quick(**SETTINGS[name])
    usual = fit(store, settings, run_dir=tmp_path / "usual")
    monkeypatch.setattr(Budget, "left", lambda _: 0)
    same(fit(store, settings, run_dir=tmp_path / "run"), usual)
    assert not (tmp_path / "run" / "inputs").exists(), "ÂX is with the store"


@pytest.mark.parametrize(
    ("left", "matrix_on_disk", "inputs_on_disk"),
    [(300, True, True), (-8, True, False), (600, False, True), (9_000, False, False)],
)
def test_any_room_gives_the_same(
    left: int,
    matrix_on_disk: bool,
    inputs_on_disk: bool,
    store: Graph,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Â in memory or not, some rows of ÂX hot or all of them; `left` is beside Â if above 300."""
    settings = quick()
    usual = fit(store, settings)
    entries = len(ready(store, settings).data.adjacency.indices)
    demand = training_demand(store, settings, 36, entries)
    room = demand.fixed + left + (0 if left == 300 else demand.matrix)
    monkeypatch.setattr(Budget, "left", lambda _: room)
    data = ready(store, settings).data
    assert bool(data.adjacency.files) == matrix_on_disk
    assert data.inputs.on_disk == inputs_on_disk
    same(fit(store, settings), usual)


@pytest.mark.usefixtures("no_room")
def test_a_run_without_a_store_keeps_its_inputs_itself(tmp_path: Path) -> None:
    run = fit(communities(), quick(), run_dir=tmp_path / "run")
    assert list((tmp_path / "run" / "inputs").iterdir())
    again = resume(tmp_path / "run", communities())
    assert without_times(again.metrics) == without_times(run.metrics)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("input_skip", [False, True])
def test_half_precision_is_the_same_on_disk_and_in_memory(
    dtype: str, input_skip: bool, store: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = quick(inputs_dtype=dtype, input_skip=input_skip)
    in_memory = fit(store, settings)
    whole = fit(store, settings.replace(inputs_dtype="float32"))
    monkeypatch.setattr(Budget, "left", lambda _: 0)
    on_disk = fit(store, settings)
    for one, other in zip(on_disk.model.parameters(), in_memory.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert weights_of(in_memory.model) != weights_of(whole.model)
    close = 2e-2 if dtype == "bfloat16" else 2e-3
    assert in_memory.metrics["val_loss"] == pytest.approx(whole.metrics["val_loss"], rel=close)


@pytest.mark.parametrize("name", ["plain", "own rows", "jumping"])
@pytest.mark.parametrize("nodes", [None, [7, 3, 7]])
def test_applied_from_disk(
    name: str, nodes: list[int] | None, store: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fit(store, quick(**SETTINGS[name]))
    usual = predict(run, store, nodes), embed(run, store, nodes), evaluate(run, store, "test")
    monkeypatch.setattr(Budget, "left", lambda _: 0)
    monkeypatch.setattr(fastgcn.infer.predict, "_ROWS_A_PART", 2)
    monkeypatch.setattr(fastgcn.features.propagate, "_FILE_PART_BYTES", 100)
    monkeypatch.chdir(Path(store.features.filename).parent.parent)  # type: ignore[union-attr]
    np.testing.assert_allclose(predict(run, store, nodes), usual[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(embed(run, store, nodes), usual[1], rtol=1e-4, atol=1e-6)
    assert evaluate(run, store, "test").micro_f1 == usual[2].micro_f1


@pytest.mark.parametrize("ending", ["csv", "parquet", "npy"])
def test_files_are_written_in_parts(
    ending: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    save(communities(), tmp_path / "store")
    fit(open_store(tmp_path / "store"), quick(), run_dir=tmp_path / "run")
    command = "embed" if ending == "npy" else "predict"
    outs = [tmp_path / f"{name}.{ending}" for name in ("whole", "parts")]
    for out, rows in zip(outs, (100, 7), strict=True):
        monkeypatch.setattr(fastgcn.infer.predict, "_ROWS_A_PART", rows)
        outcome = run_cli(capfd, command, tmp_path / "run", tmp_path / "store", "--out", out)
        assert outcome.code == 0, outcome.err
    if ending == "parquet":
        import pyarrow.parquet

        one, other = (pyarrow.parquet.read_table(out) for out in outs)
        assert one.equals(other)
        assert one.num_rows == 60
    else:
        assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "digits", "--memory", "lots"), "at least 1MB, such as 500MB or 2GB, got 'lots'"),
        (("train", "digits", "--memory", "2MB"), "memory = 2 MB is not enough to train on digits:"),
        (("train", "digits", "--inputs-dtype", "half"), "one of float32, float16, bfloat16, got"),
        (("generate", "out", "--preset", "reddit-sim", "--memory", "few"), "got 'few'"),
    ],
    ids=["no number", "too little", "no precision", "generate"],
)
def test_wrong_values_get_a_sentence(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run_cli(capfd, *arguments)
    assert outcome.code == 1
    assert message in outcome.err
    assert "Traceback" not in outcome.err


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2)
import fastgcn
from fastgcn.memory import resident_memory
config = fastgcn.TrainConfig(
    hidden=16, samples=100, batch_size=20_000, epochs=1, threads=1, memory=sys.argv[3], device="cpu"
).complete()
try:
    run = fastgcn.fit(fastgcn.open_store(sys.argv[2]), config, run_dir=sys.argv[4])
except MemoryError:
    sys.exit(3)
fastgcn.predict(run, fastgcn.open_store(sys.argv[2]), range(1000), memory=sys.argv[3])
print(run.metrics["test_micro_f1"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to its limit")
def test_the_promise_is_kept_under_a_real_limit(tmp_path: Path) -> None:
    """The system limits what a process may allocate: a budget keeps to that, and so does none,
    which asks for the limit; a budget of more does not."""
    config = GenerateConfig(
        nodes=160_000, edges=300_000, features=1000, classes=3, train=155_000, val=2_000, test=3_000
    )
    generate(config, tmp_path / "store")
    limit = 800 * 10**6

    def train(memory: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", LIMITED, str(limit), str(tmp_path / "store"), memory]
        command.append(str(tmp_path / memory))
        return subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)

    kept = train("800MB")
    assert kept.returncode == 0, kept.stderr
    assert 0.5 < float(kept.stdout) <= 1
    assert train("auto").returncode == 0
    assert train("8GB").returncode == 3
