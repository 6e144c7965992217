"""Speed: what is timed is what is said, the page is kept, the plain program is no straw man."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.commands import app as bench
from benchmarks.results import Results
from benchmarks.speed import figures, memory, page, startup, trainings, turns
from benchmarks.speed.effort import quick
from benchmarks.speed.floor import PARTS, Floor, Operands, fastest, with_all_drawn
from benchmarks.speed.graphsage import measure_rivals
from benchmarks.speed.products import measure_inference, measure_propagation
from benchmarks.speed.scaling import growth, measure_curve
from benchmarks.speed.shown import Claim, Shown, claims_table
from benchmarks.speed.training_process import STATUS
from benchmarks.speed.training_process import main as training_process

import fastgcn
from fastgcn.backends.cpu import CpuBackend, ready
from fastgcn.errors import DownloadError, MissingFileError
from fastgcn.sampling import Block
from fastgcn.train.presets import paper_preset
from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_PAUSE", 0)


def show(name: str, records: Mapping[str, Any]) -> Shown:
    """A figure as it is shown from records that have been through a file."""
    (figure,) = figures.chosen([name])
    return figure.show(json.loads(json.dumps(records)))


def test_sides_take_turns_after_run_ins() -> None:
    done: list[tuple[str, int]] = []
    sides = {name: lambda count, name=name: done.append((name, count)) for name in "ab"}
    found = turns.seconds_in_turns(sides, rounds=3, chunk_seconds=1e-3)
    assert {name: len(times) for name, times in found.items()} == {"a": 3, "b": 3}
    last = done[-12:]
    assert [name for name, _ in last] == ["a", "a", "b", "b"] * 3
    lengths = dict(last[1::2])
    for (name, run_in), (_, timed) in zip(last[::2], last[1::2], strict=True):
        assert timed == lengths[name]
        assert run_in == round(0.2 * timed)


def test_a_slow_side_does_one_unit_a_turn() -> None:
    done: list[int] = []
    turns.seconds_in_turns({"it": done.append}, rounds=2, chunk_seconds=0)
    assert done == [1, 0, 1, 0, 1]


def test_repeated_begins_again_where_it_ended() -> None:
    done: list[int] = []
    side = turns.repeated([lambda: done.append(1), lambda: done.append(2)])
    side(3)
    side(2)
    assert done == [1, 2, 1, 2, 1]


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
    prepared = next(trainer.minibatches.singly(trainer.minibatches.shuffled()))
    q = np.full(trainer.data.adjacency.n, 1 / trainer.data.adjacency.n)
    padded = with_all_drawn(prepared, q, 200, seed=0)
    (before,), (after,) = prepared.blocks, padded.blocks
    assert len(before.src) < 200
    assert len(after.src) == len(set(after.src.tolist())) == 200
    assert torch.equal(after.src[: len(before.src)], before.src)
    assert after.csr is before.csr
    floor = Floor(trainer, [padded])
    assert floor.rows == 200
    names = {name.split(": ")[1] for name in floor.sides("it")}
    assert names == set(PARTS)
    for side in floor.sides("it").values():
        side(2)


def test_the_fastest_routine_of_each_part_counts() -> None:
    found = {f"a: {part}: {name}": t for part in PARTS for name, t in (("x", 2.0), ("y", 1.0))}
    found["b: Adam: z"] = 0.5
    assert fastest(found, "a") == dict.fromkeys(PARTS, ("y", 1.0))


def test_rivals() -> None:
    found = measure_rivals(data="digits", rounds=2, chunk_seconds=0.001)
    for how in ("in_turns", "alone"):
        assert set(found[how]) == {"FastGCN", "GraphSAGE-GCN"}
        assert min(found[how].values()) > 0
    assert [claim.met for claim in show("graphsage", {"digits": found}).claims] == [None, None]
    asked = show("graphsage", {"pubmed": found}).claims
    assert [claim.bound for claim in asked] == ["at least 20", "at least 20"]


def test_trainings_have_the_same_epochs() -> None:
    found = trainings.measure_training(data="digits", rounds=1, epochs=3)
    assert found["ours"]["epochs"] == found["plain"]["epochs"] == 3
    assert 0 < found["ours"]["test_micro_f1"] < 1
    (claim,) = show("trainings", {"digits": found}).claims
    assert claim.value == found["ours"]["seconds"] / found["plain"]["seconds"]


def test_the_plain_program_learns_and_stops() -> None:
    graph, plain = fastgcn.load("digits"), trainings.plain_training()
    config = paper_preset("cora").replace(learning_rate=0.05, hidden=32)
    found = plain(graph, config, epochs=60, stop_early=False)
    assert found["epochs"] == 60
    assert found["test_micro_f1"] > 0.9
    # So large steps make the validation loss rise.
    hasty = config.replace(learning_rate=3.0)
    assert 30 < plain(graph, hasty, epochs=60, stop_early=True)["epochs"] < 60


def test_without_the_plain_program_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastgcn, "__file__", str(tmp_path / "a" / "b" / "__init__.py"))
    with pytest.raises(MissingFileError, match="plain_fastgcn.py, which is not there"):
        trainings.plain_training()


@pytest.mark.parametrize("curve", ["nodes", "degree", "samples"])
def test_curves(curve: str) -> None:
    values = {"nodes": (300, 600), "degree": (4, 8), "samples": (20, 40)}[curve]
    found = measure_curve(
        curve=curve, values=values, nodes=400, degree=6, samples=30, rounds=1, chunk_seconds=0.001
    )
    assert list(found) == ["ÂX precomputed", "both layers sampled"]
    for seconds in found.values():
        assert list(seconds) == [str(value) for value in values]
        assert min(seconds.values()) > 0
    shown = show("scaling", {curve: found})
    assert len(shown.claims) == (0 if curve == "degree" else 2)
    assert shown.pictures[f"speed_{curve}"].svg.startswith("<svg")
    assert [row[0] for row in shown.tables[0].rows] == [str(value) for value in values]


def test_growth_is_the_worst_step() -> None:
    assert growth({"1": 1.0, "2": 3.0, "4": 2.0}) == 3.0


def test_propagation_and_inference() -> None:
    found = measure_propagation(data="digits", rounds=1)
    graph = fastgcn.load("digits")
    assert found["width"] == graph.n_features
    assert len(graph.split.train) < found["entries"] < len(graph.indices)
    seconds = found["seconds"]
    first, second = show("propagation", {"digits": found}).claims
    assert first.value == seconds["fastgcn, 1 thread"] / seconds["scipy, 1 thread"]
    assert second.value == seconds["fastgcn, 1 thread"] / seconds["fastgcn, all threads"]

    found = measure_inference(data="digits", rounds=1)
    asked, cheaper = show("inference", {"digits": found}).claims
    seconds = found["seconds"]
    floor = seconds["ÂX"] + seconds["XW0 and HW1"] + seconds["Â(HW1)"]
    assert asked.value == pytest.approx(seconds["predict"] / floor)
    assert cheaper.bound == "–"


@pytest.mark.skipif(not STATUS.exists(), reason="peak memory is read from Linux's /proc")
def test_a_training_process_says_its_memory(capfd: Capture) -> None:
    training_process(["digits", "1"])
    found = json.loads(capfd.readouterr().out)
    assert 0 < found["anonymous"] <= found["peak"]


def test_memory_is_compared_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def fresh(*arguments: str) -> dict[str, int]:
        asked.append(arguments)
        return {"peak": 10**9, "anonymous": 10**8} if arguments else {"peak": 0, "anonymous": 0}

    monkeypatch.setattr(memory, "_fresh", fresh)
    monkeypatch.setattr(memory, "STATUS", Path(__file__))
    found = memory.measure_memory(data="digits")
    assert asked == [(), ("digits", "2")]
    assert found["needed"]["ÂX"] == 4 * 1078 * 64
    whole, _, anonymous = show("memory", {"digits": found}).claims
    assert whole.value == pytest.approx(10**9 / sum(found["needed"].values()))
    assert anonymous.value == pytest.approx(whole.value / 10)


def test_starts() -> None:
    found = startup.measure_starts(processes=1)
    assert set(found) == {"interpreter", "import", "help"}
    assert min(found.values()) > 0


def test_a_first_start_finds_no_kernels_and_the_next_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def seconds(arguments: list[str], environment: Mapping[str, str]) -> float:
        assert arguments[:5] == ["-m", "fastgcn", "train", "digits", "--epochs"]
        folder = Path(environment["NUMBA_CACHE_DIR"])
        folder.mkdir(exist_ok=True)
        seen.append(os.listdir(folder))  # noqa: PTH208
        (folder / "kernel").touch()
        return float(len(seen))

    monkeypatch.setattr(startup, "_seconds", seconds)
    found = startup.measure_first_start(data="digits", processes=3)
    assert seen == [[], ["kernel"]] * 3
    assert found == {"cold": 3.0, "warm": 4.0}
    records = {"starts": {"interpreter": 0.1, "import": 0.2, "help": 0.4}, "digits": found}
    assert [claim.met for claim in show("startup", records).claims] == [False, True, True]


def test_claims_say_whether_they_are_met() -> None:
    claims = [
        Claim(what="a", value=1.2, at_most=1.3),
        Claim(what="b", value=99.9, at_least=100),
        Claim(what="c", value=5.0, unit=" s"),
    ]
    rows = claims_table(claims, "all").rows
    assert rows == [
        ("a", "1.2", "at most 1.3", "yes"),
        ("b", "99.9", "at least 100", "no"),
        ("c", "5 s", "–", "–"),
    ]


def measured(capfd: Capture, folder: Path, *only: str) -> dict[str, Any]:
    chosen = [word for name in only for word in ("--only", name)]
    files = ["--results", folder / "speed.jsonl", "--docs", folder / "speed.md"]
    outcome = run_cli(capfd, "speed", "--quick", "--json", *chosen, *files, commands=bench)
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_the_command_measures_once_and_keeps_the_page(capfd: Capture, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "speed.md").read_text()
    prose = "The machine should have nothing else to do."
    assert prose in text
    (tmp_path / "speed.md").write_text(text)
    found = measured(capfd, tmp_path, "step")
    assert [claim["figure"] for claim in found["claims"]] == ["step", "step"]
    record = found["records"]["step"]["digits"]
    assert len(record["floor"]["rows met"]) == len(PARTS)
    assert record["rows"]["rows met"] <= record["rows"]["all rows drawn"] == 400

    written = (tmp_path / "speed.md").read_text()
    assert prose in written
    assert "| a step / its floor |" in written
    assert written.count(page.NOT_YET) == len(figures.FIGURES) - 1
    assert written.count(page.STAND_INS) == 1

    lines = (tmp_path / "speed.jsonl").read_bytes()
    assert measured(capfd, tmp_path, "step") == found
    assert (tmp_path / "speed.jsonl").read_bytes() == lines
    assert (tmp_path / "speed.md").read_text() == written

    # Another figure is added, and the first stays.
    again = measured(capfd, tmp_path, "propagation")
    assert again["claims"][:2] == found["claims"]
    assert (tmp_path / "speed.md").read_text().count(page.NOT_YET) == len(figures.FIGURES) - 2
    assert (tmp_path / "speed.jsonl").read_bytes().startswith(lines)


def test_a_page_that_is_not_there_is_made_with_its_pictures(tmp_path: Path) -> None:
    results = Results(tmp_path / "speed.jsonl")
    (figure,) = figures.chosen(["scaling"])
    seconds = {"ÂX precomputed": {"10": 1.0, "20": 2.0}}
    for part in figure.parts(quick()):
        results.measure(figures.key(figure, part), lambda: seconds)
    files = page.write_page(tmp_path / "speed.md", quick(), results)
    assert files[-1] == tmp_path / "speed.md"
    assert [file.name for file in files[:-1]] == [
        "speed_nodes.svg", "speed_degree.svg", "speed_samples.svg"
    ]  # fmt: skip
    text = files[-1].read_text()
    for file in files[:-1]:
        assert f"](figures/{file.name})" in text
        assert file.read_text().startswith("<svg")


def test_data_that_cannot_be_had_is_left_out_where_it_may_be(tmp_path: Path) -> None:
    def offline() -> dict[str, Any]:
        raise DownloadError("could not download it")

    def parts(optional: bool) -> list[figures.Part]:
        return [figures.Part("far", offline, {}, optional)]

    results = Results(tmp_path / "speed.jsonl")
    lenient = figures.Figure("f", "F", lambda _: parts(True), lambda _: Shown([]))
    figures.measure([lenient], quick(), results)
    assert figures.on_file(lenient, quick(), results) == {}
    strict = figures.Figure("f", "F", lambda _: parts(False), lambda _: Shown([]))
    with pytest.raises(DownloadError):
        figures.measure([strict], quick(), results)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "stpe"], "--only takes a figure of step, graphsage,"),
        (["--only", "stpe"], "got 'stpe'; did you mean 'step'?"),
        (["--docs", "page.md"], "page.md must hold the line <!-- speed step: begin -->"),
    ],
)
def test_mistakes_get_one_sentence_before_anything_is_measured(
    arguments: list[str],
    message: str,
    capfd: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text("# Something else\n")
    outcome = run_cli(capfd, "speed", *arguments, commands=bench)
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.err.startswith("Error: ")
    assert os.listdir(tmp_path) == ["page.md"]  # noqa: PTH208
