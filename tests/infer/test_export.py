"""An exported network gives what `predict` gives, for any kind of network."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastgcn
from fastgcn.errors import InputError, MissingDependencyError
from fastgcn.graph.graph import Graph
from fastgcn.infer.export import Exported, export, neighborhood
from tests.cli_runner import run_cli
from tests.communities import communities, quick
from tests.regression import numbers

NODES = [5, 0, 33]

# What networks differ in.
KINDS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "pair": {"pair": True, "skip": True, "input_skip": True, "bias": True},
    "mean, layer norm, three layers": {
        "normalization": "neighbors", "skip": True, "input_skip": True, "norm": "layer",
        "hidden": (8, 8),
    },
    "batch norm, jumping": {"norm": "batch", "jumping": "concat", "hidden": (8, 8)},
    "row, scaled rows": {"normalization": "row", "feature_scaling": "row", "bias": True},
    "standard, max": {"feature_scaling": "standard", "jumping": "max", "hidden": (8, 8)},
    "no hidden layer": {"hidden": ()},
    "max": {"aggregator": "max", "normalization": "neighbors", "precompute": False, "skip": True},
    "attention": {"aggregator": "attention", "normalization": "row", "precompute": False},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_equals_predict(kind: str) -> None:
    graph = communities()
    run = fastgcn.fit(graph, quick(epochs=2, **KINDS[kind]))
    found = neighborhood(run, graph, NODES)
    outputs = Exported(run.model)(*map(torch.from_numpy, found)).detach().numpy()
    assert np.abs(outputs - fastgcn.predict(run, graph, NODES)).max() < 1e-5


@pytest.fixture(scope="module")
def trained() -> tuple[Graph, fastgcn.Run]:
    graph = fastgcn.load("digits")
    run = fastgcn.fit(graph, epochs=4)
    assert run.model.decision.temperature != 1
    return graph, run


def test_a_file_for_torch(trained: tuple[Graph, fastgcn.Run], tmp_path: Path) -> None:
    graph, run = trained
    about = export(run, tmp_path / "m.pt2")
    extra = {"about.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=extra)
    assert json.loads(extra["about.json"]) == about
    assert len(neighborhood(run, graph, [7]).x) < 100
    for nodes in (NODES, [7], range(300)):
        outputs = program.module()(*map(torch.from_numpy, neighborhood(run, graph, nodes)))
        wanted = fastgcn.predict(run, graph, nodes)
        assert np.abs(outputs.detach().numpy() - wanted).max() < 1e-5


def test_a_file_for_onnxruntime(trained: tuple[Graph, fastgcn.Run], tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    graph, run = trained
    export(run, tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    for nodes in (NODES, [7], range(300)):
        (outputs,) = session.run(None, neighborhood(run, graph, nodes)._asdict())
        assert np.abs(outputs - fastgcn.predict(run, graph, nodes)).max() < 1e-5
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["class_names"])[3] == "3"
    assert [each.name for each in session.get_outputs()] == ["probabilities"]


class Gated(torch.nn.Module):
    """A network of the user's own, over the edges of blocks."""

    n_layers = 1

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.own, self.gate = torch.nn.Linear(n_in, n_out), torch.nn.Linear(n_in, n_out)

    def forward(self, blocks: Any, x: torch.Tensor) -> torch.Tensor:
        (block,) = blocks
        out: torch.Tensor = self.own(block.own_rows(x)) + self.gate(block.mix(x)).sigmoid()
        return out


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    graph = communities()
    run = fastgcn.fit(graph, model=Gated(6, 3), samples=20, epochs=2, threads=1)
    export(run, tmp_path / "m.pt2")
    apply = torch.export.load(tmp_path / "m.pt2").module()
    outputs = apply(*map(torch.from_numpy, neighborhood(run, graph, NODES)))
    wanted = fastgcn.predict(run, graph, NODES)
    assert np.abs(outputs.detach().numpy() - wanted).max() < 1e-5


def test_a_regression_gives_numbers_in_its_units() -> None:
    graph = numbers()
    run = fastgcn.fit(graph, quick(epochs=2))
    outputs = Exported(run.model)(*map(torch.from_numpy, neighborhood(run, graph, NODES)))
    assert outputs.shape == (3, 1)
    assert np.allclose(outputs.detach()[:, 0], fastgcn.predict(run, graph, NODES), atol=1e-5)


def test_the_command(
    trained: tuple[Graph, fastgcn.Run], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trained[1].save(tmp_path / "run")
    outcome = run_cli(capfd, "export", tmp_path / "run", "--out", tmp_path / "m.pt2", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["bytes"] == (tmp_path / "m.pt2").stat().st_size
    for options, sentence in {
        ("--out", tmp_path / "m.bin"): "must end in .pt2 (torch) or .onnx",
        ("--out", tmp_path / "m.bin", "--format", "keras"): "format must be torch or onnx",
        ("--out", tmp_path / "no" / "m.onnx"): "there is no folder",
    }.items():
        wrong = run_cli(capfd, "export", tmp_path / "run", *options)
        assert (wrong.code, wrong.err.count("\n")) == (1, 1)
        assert sentence in wrong.err


def test_what_is_refused(
    trained: tuple[Graph, fastgcn.Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    graph, run = trained
    largest = fastgcn.fit(communities(), quick(epochs=1, **KINDS["max"]))
    capfd.readouterr()
    with pytest.raises(InputError, match="has an operation that cannot be written for torch"):
        export(largest, tmp_path / "m.pt2")
    assert capfd.readouterr().err == ""
    with pytest.raises(InputError, match="features"):
        neighborhood(run, communities(), [0])
    with pytest.raises(InputError, match="node"):
        neighborhood(run, graph, [10**6])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'fastgcn\[export\]'"):
        export(run, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
