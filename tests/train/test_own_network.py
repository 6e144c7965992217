"""`fit(graph, model=module)`: any module trains, resumes, evaluates and predicts new nodes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fastgcn
from fastgcn import Block, Run
from fastgcn.errors import InputError
from tests.cli_runner import run_cli
from tests.communities import communities

GRAPH = communities()


class Own(nn.Module):
    """Two convolutions with dropout, in plain torch."""

    def __init__(self, width: int = 8, outputs: int = 3) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(6, width), nn.Linear(width, outputs)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, blocks: Sequence[Block], x: Tensor) -> Tensor:
        h = blocks[0].mix(self.first(nn.functional.dropout(x, 0.2, self.training)))
        return blocks[1].mix(self.second(torch.relu(self.norm(h))))


SAMPLED: dict[str, Any] = {"samples": (30, 30), "batch_size": 16, "epochs": 8}


@pytest.mark.parametrize("settings", [{"epochs": 30}, SAMPLED], ids=["full", "sampled"])
def test_a_module_learns_and_predicts_exactly(settings: dict[str, Any]) -> None:
    run = fastgcn.fit(GRAPH, model=Own(), **settings)
    assert run.metrics["test_micro_f1"] > 0.6
    adjacency = torch.from_numpy(fastgcn.normalize(GRAPH).to_scipy().toarray())
    every = torch.arange(GRAPH.n_nodes)
    whole = Block(every, every, adjacency)
    scaled = GRAPH.features
    if (known := run.model.feature_statistics) is not None:
        scaled = (scaled - known.mean) * known.scale
    logits = run.model.module([whole, whole], torch.from_numpy(scaled).float())  # type: ignore[operator]
    expected = run.model.predictions(logits).detach().numpy()
    np.testing.assert_allclose(fastgcn.predict(run, GRAPH), expected, rtol=1e-4, atol=1e-6)


def test_the_users_module_itself_is_not_changed() -> None:
    module = Own()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    fastgcn.fit(GRAPH, model=module, epochs=2)
    assert all(torch.equal(before[n], value) for n, value in module.state_dict().items())


def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    once = fastgcn.fit(GRAPH, model=Own(), **SAMPLED)
    with pytest.raises(KeyboardInterrupt):
        fastgcn.fit(GRAPH, model=Own(), run_dir=tmp_path / "run", callbacks=[stop], **SAMPLED)
    with pytest.raises(InputError, match="has a network of your own, Own"):
        fastgcn.resume(tmp_path / "run", GRAPH)
    half = Run.load(tmp_path / "run", model=Own())
    assert half.stopped is not None
    resumed = fastgcn.resume(tmp_path / "run", GRAPH, model=Own())
    again = Run.load(tmp_path / "run", model=Own())
    for name, value in once.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
        assert torch.equal(value, again.model.state_dict()[name]), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "run"
    fastgcn.fit(GRAPH, model=Own(), run_dir=path, epochs=3)
    return path


def test_a_run_is_loaded_with_the_module(folder: Path, tmp_path: Path) -> None:
    run = Run.load(folder, model=Own())
    assert type(run.model.module).__name__ == "Own"
    again = Run.load(run.save(tmp_path / "copy").path or "", model=Own())
    np.testing.assert_array_equal(fastgcn.predict(again, GRAPH), fastgcn.predict(run, GRAPH))
    found = fastgcn.evaluate(run, GRAPH, "test")
    assert found.micro_f1 == pytest.approx(run.metrics["test_micro_f1"])
    # A further run starts from its weights.
    further = fastgcn.fit(GRAPH, model=run.model, epochs=1)
    assert further.model.sizes == run.model.sizes


def test_what_is_wrong_is_said_in_one_sentence(folder: Path) -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: Run.load(folder), "has a network of your own, Own, which its folder does not"),
        (lambda: Run.load(folder, model=Own(width=9)), "the module given does not fit"),
        (lambda: fastgcn.fit(GRAPH, model=Own(), hidden=9), "hidden is a setting of fastgcn's own"),
        (lambda: fastgcn.fit(GRAPH, model=Own(outputs=2)), r"logits of shape \(36, 3\)"),
        (
            lambda: fastgcn.fit(GRAPH, model=cast(Any, Own)),
            "must be a torch.nn.Module, got type",
        ),
        (lambda: fastgcn.explain(Run.load(folder, model=Own()), GRAPH, 0), "explain is for"),
        (lambda: fastgcn.embed(Run.load(folder, model=Own()), GRAPH), "Own gives logits only"),
    ]
    for do, words in cases:
        with pytest.raises(InputError, match=words):
            do()


def test_commands_name_the_way(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = run_cli(capfd, "evaluate", folder, "digits")
    assert found.code == 1
    assert "load it in Python with fastgcn.Run.load(" in " ".join(found.err.split())
