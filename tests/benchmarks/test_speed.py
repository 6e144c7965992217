"""Speed: what is timed is what is said, and the plain program is no straw man."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.commands import app
from benchmarks.pages import NOT_YET, Claim
from benchmarks.processes import STATUS, fresh, train_once
from benchmarks.speed_step import PARTS, Floor, Operands, fastest, with_all_drawn

import fastgcn
from benchmarks import plain_fastgcn, speed, speed_costs, timing
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.sampling import Block
from fastgcn.train.presets import paper_preset
from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_PAUSE", 0.0)


def claims_of(show: speed.Show, records: Mapping[str, Any]) -> list[Claim]:
    """What a figure claims of records that have been through a file."""
    claims, content = show(json.loads(json.dumps(records)))
    assert content
    return claims


@pytest.fixture(scope="module")
def trainer() -> CpuBackend:
    config = paper_preset("digits").replace(threads=1, samples=50, hidden=8)
    return ready(fastgcn.load("digits"), config)


@pytest.mark.parametrize("mix_first", [False, True])
def test_the_floors_operands_are_those_of_a_step(trainer: CpuBackend, mix_first: bool) -> None:
    """The products are autograd's: what they give is the gradient of Σ Z²/2, whose G is Z."""
    x = trainer.data.rows(torch.arange(6))
    rows = 2 if mix_first else 40  # fewer rows than sources: mixing first is cheaper
    adj = torch.rand(rows, 6, generator=torch.Generator().manual_seed(0))
    csr = np.arange(rows + 1) * 6, np.tile(np.arange(6), rows), adj.numpy().reshape(-1)
    block = Block.of_csr(torch.arange(rows), torch.arange(6), csr)
    first, second = trainer.model.convolutions
    assert second.mix_first(block) == mix_first
    each = Operands.of(block, x.numpy(), trainer)

    z = adj @ torch.relu(x @ first.weight) @ second.weight
    expected = torch.autograd.grad((z**2).sum() / 2, [first.weight, second.weight])
    masked = each.hidden_gradient * (x @ first.weight > 0).numpy()  # ReLU is not in the floor
    np.testing.assert_allclose(each.x.T @ masked, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(each.factor.T @ each.gradient, expected[1], rtol=1e-4, atol=1e-5)


def test_all_drawn_rows_keep_those_that_were_met(trainer: CpuBackend) -> None:
    batch = next(trainer.minibatches.singly(trainer.minibatches.shuffled()))
    q = np.full(trainer.data.adjacency.n, 1 / trainer.data.adjacency.n)
    padded = with_all_drawn(batch, q, 200, seed=0)
    (before,), (after,) = batch.blocks, padded.blocks
    assert len(before.src) < 200
    assert len(after.src) == len(set(after.src.tolist())) == 200
    assert torch.equal(after.src[: len(before.src)], before.src)
    assert after.csr is before.csr
    floor = Floor(trainer, [padded])
    assert floor.rows == 200
    assert {name.split(": ")[1] for name in floor.sides("it")} == set(PARTS)
    for side in floor.sides("it").values():
        side(2)


def test_the_fastest_routine_of_each_part_counts() -> None:
    found = {f"a: {part}: {name}": t for part in PARTS for name, t in (("x", 2.0), ("y", 1.0))}
    found["b: Adam: z"] = 0.5
    assert fastest(found, "a") == dict.fromkeys(PARTS, ("y", 1.0))


def test_rivals() -> None:
    found = speed.measure_rivals(data="digits", rounds=2, chunk_seconds=0.001)
    for how in ("in_turns", "alone"):
        assert set(found[how]) == {"FastGCN", "GraphSAGE-GCN"}
        assert min(found[how].values()) > 0
    assert [c.met for c in claims_of(speed.show_rivals, {"digits": found})] == [None, None]
    asked = claims_of(speed.show_rivals, {"pubmed": found})
    assert [claim.bound for claim in asked] == ["at least 20", "at least 20"]


def test_trainings_have_the_same_epochs() -> None:
    found = speed.measure_training(data="digits", rounds=1, epochs=3)
    assert found["ours"]["epochs"] == found["plain"]["epochs"] == 3
    assert 0 < found["ours"]["test_micro_f1"] < 1
    (claim,) = claims_of(speed.show_trainings, {"digits": found})
    assert claim.value == found["ours"]["seconds"] / found["plain"]["seconds"]


def test_the_plain_program_learns() -> None:
    config = paper_preset("cora").replace(learning_rate=0.05, hidden=32)
    found = plain_fastgcn.train(fastgcn.load("digits"), config, epochs=60)
    assert found["epochs"] == 60
    assert found["test_micro_f1"] > 0.9


@pytest.mark.parametrize("curve", ["nodes", "degree", "samples"])
def test_curves(curve: str) -> None:
    values = {"nodes": (300, 600), "degree": (4, 8), "samples": (20, 40)}[curve]
    found = speed.measure_curve(
        curve=curve, values=values, nodes=400, degree=6, samples=30, rounds=1, chunk_seconds=0.001
    )
    assert list(found) == ["ÂX precomputed", "both layers sampled"]
    for seconds in found.values():
        assert list(seconds) == [str(value) for value in values]
        assert min(seconds.values()) > 0
    claims, (table, picture) = speed.show_scaling({curve: found})
    assert len(claims) == (0 if curve == "degree" else 2)
    assert "<svg" in picture.svg  # type: ignore[union-attr]
    assert [row[0] for row in table.rows] == [str(v) for v in values]  # type: ignore[union-attr]


def test_growth_is_the_worst_step() -> None:
    assert speed.growth({"1": 1.0, "2": 3.0, "4": 2.0}) == 3.0


def test_propagation_and_inference() -> None:
    found = speed_costs.measure_propagation(data="digits", rounds=1)
    graph = fastgcn.load("digits")
    assert found["width"] == graph.n_features
    assert len(graph.split.train) < found["entries"] < len(graph.indices)
    seconds = found["seconds"]
    first, second = claims_of(speed_costs.show_propagation, {"digits": found})
    assert first.value == seconds["fastgcn, 1 thread"] / seconds["scipy, 1 thread"]
    assert second.value == seconds["fastgcn, 1 thread"] / seconds["fastgcn, all threads"]

    found = speed_costs.measure_inference(data="digits", rounds=1)
    asked, cheaper = claims_of(speed_costs.show_inference, {"digits": found})
    seconds = found["seconds"]
    floor = seconds["ÂX"] + seconds["XW0 and HW1"] + seconds["Â(HW1)"]
    assert asked.value == pytest.approx(seconds["predict"] / floor)
    assert cheaper.bound == "–"


@pytest.mark.skipif(not STATUS.exists(), reason="peak memory is read from Linux's /proc")
def test_a_process_of_its_own_says_its_memory() -> None:
    found = fresh(train_once, "digits", 1)
    assert 0 < found["anonymous"] <= found["peak"]
    assert found["seconds"] > 0


def test_memory_is_compared_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(_: object, data: str, epochs: int) -> dict[str, int]:
        assert data == "digits"
        return {"peak": epochs * 10**9, "anonymous": epochs * 10**8}

    monkeypatch.setattr(speed_costs, "fresh", measured)
    found = speed_costs.measure_memory(data="digits")
    assert found["needed"]["ÂX"] == 4 * 1078 * 64
    whole, _, anonymous = claims_of(speed_costs.show_memory, {"digits": found})
    assert whole.value == pytest.approx(2 * 10**9 / sum(found["needed"].values()))
    assert anonymous.value == pytest.approx(whole.value / 10)


def test_a_first_start_finds_no_kernels_and_the_next_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def python(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        assert arguments[:5] == ["-m", "fastgcn", "train", "digits", "--epochs"]
        folder = Path(environment["NUMBA_CACHE_DIR"])
        folder.mkdir(exist_ok=True)
        seen.append(os.listdir(folder))  # noqa: PTH208
        (folder / "kernel").touch()

    monkeypatch.setattr(speed_costs, "_python", python)
    found = speed_costs.measure_first_start(data="digits", processes=3)
    assert seen == [[], ["kernel"]] * 3
    assert set(found) == {"cold", "warm"}
    starts = {"interpreter": 0.1, "import": 0.2, "help": 0.4}
    records = {"starts": starts, "digits": {"cold": 3.0, "warm": 4.0}}
    claims = claims_of(speed_costs.show_startup, records)
    assert [claim.met for claim in claims] == [False, True, True]


def test_the_command_measures_once(capfd: Capture, tmp_path: Path) -> None:
    folders = ["--quick", "--json", "--results", str(tmp_path), "--docs", str(tmp_path)]
    outcome = run_cli(capfd, "speed", "step", *folders, commands=app)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["measured"] == 1
    (section,) = found["sections"]
    assert section["tables"][0]["rows"][0][0] == "a step / its floor"
    assert len(section["tables"][2]["rows"]) == len(PARTS) + 1
    text = (tmp_path / "speed.md").read_text()
    assert text.count(speed.STAND_INS) == 1
    assert text.count(NOT_YET) == len(speed.experiments(speed.QUICK)) - 1
    again = json.loads(run_cli(capfd, "speed", "step", *folders, commands=app).out)
    assert again == found | {"measured": 0}
    assert (tmp_path / "speed.md").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stpe"], "no experiment 'stpe'; did you mean 'step'?"),
        (["--device", "tpu"], "device must be cpu or cuda, got 'tpu'"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str], message: str, capfd: Capture, tmp_path: Path
) -> None:
    folders = ["--results", tmp_path, "--docs", tmp_path]
    outcome = run_cli(capfd, "speed", *arguments, *folders, commands=app)
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.err.startswith("Error: ")
