"""`diagnose` from end to end: the library, the command, its page and its mistakes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastgcn
from fastgcn import TrainConfig
from fastgcn.diagnose import Diagnosis, diagnose
from fastgcn.diagnose.diagnosis import Advice, Offer
from fastgcn.diagnose.session import Session
from fastgcn.errors import InputError
from fastgcn.report.diagnosis import as_data, diagnosis_page, member_table, size_tables
from fastgcn.sampling import layer_sampler
from tests.browser import DESKTOP, PHONE, check_page, chromium
from tests.cli_runner import run_cli
from tests.communities import communities, quick

GRAPH = communities(n=120)


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    return diagnose(GRAPH, quick(hidden=(8, 8), samples=20), targets=(0.5, 2.0))


def test_everything_is_measured(found: Diagnosis) -> None:
    assert (found.nodes, found.batches, found.complete, found.trained) == (72, 5, True, False)
    assert [m.layer for m in found.members] == [2, 3] * 40
    sizes = sorted({m.t for m in found.curves})
    assert sizes == [5, 10, 20, 40, 72]
    assert {cost.t for cost in found.costs} == set(sizes)
    assert all(cost.seconds > 0 for cost in found.costs)
    assert all(cost.gradient is not None for cost in found.costs)
    assert {m.member.distribution for m in found.curves} == {
        "uniform", "importance", "flat", "ladies"
    }  # fmt: skip


def test_errors_and_empty_rows_fall_as_more_is_drawn(found: Diagnosis) -> None:
    own = [m for m in found.curves if m.layer == 3 and m.member == found.config]
    assert len(own) == 5
    errors, empty = [m.error.value for m in own], [m.empty_rows for m in own]
    assert errors == sorted(errors, reverse=True)
    assert empty == sorted(empty, reverse=True)
    gradients = [c.gradient.value for c in found.costs if c.member == found.config and c.gradient]
    assert gradients[-1] < gradients[0]


def test_advice_reaches_its_target(found: Diagnosis) -> None:
    assert [advice.target for advice in found.advice] == [2.0, 0.5]
    for advice in found.advice:
        assert advice.offer is not None
        assert len(advice.offer.samples) == 2
        assert max(advice.offer.errors) <= 1.02 * advice.target
        assert f"For {100 * advice.target:g} % relative error a layer" in advice.sentence
    assert found.advice[0].offer.cost < found.advice[1].offer.cost  # type: ignore[union-attr]


def test_advice_for_lower_layers_is_for_the_rows_that_it_draws_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """t = 4 at the top, as the settings have it, leaves other rows below than the advice does, and
    `ladies` draws by rows. To a twentieth: noise of 300 batches."""
    monkeypatch.setattr(Session, "seconds", lambda _, member, __: member.distribution != "ladies")
    config = quick(hidden=(8, 8), samples=4)
    (advice,) = diagnose(GRAPH, config, targets=[0.4]).advice
    offer = advice.offer
    assert offer is not None
    assert offer.member.distribution == "ladies"
    network = Session(GRAPH, config, None).network
    adjacency = network.data.adjacency
    sampler = layer_sampler(offer.member, adjacency, offer.samples, own_rows=False)
    inputs = [network.rows(layer, np.arange(adjacency.n)) for layer in (0, 1)]
    squares, totals = np.zeros(2), np.zeros(2)
    rng = torch.Generator().manual_seed(7)
    for _ in range(300):
        batch = torch.randperm(adjacency.n, generator=rng)[: config.batch_size]
        for layer, block in enumerate(sampler.sample(batch, rng)):
            exact = adjacency.to_scipy()[block.dst.numpy()] @ inputs[layer]
            estimate = block.adj.to_dense().numpy() @ inputs[layer][block.src.numpy()]
            squares[layer] += np.square(estimate - exact).sum()
            totals[layer] += np.square(exact).sum()
    np.testing.assert_allclose(np.sqrt(squares / totals), offer.errors, rtol=0.05)


def test_steps_are_timed_with_whole_batches() -> None:
    """72 training nodes are four batches of 16 and one of 8."""
    session = Session(GRAPH, quick(), None)
    assert [len(batch) for batch in session.batches] == [16, 16, 16, 16, 8]
    assert [len(batch) for batch in session._timer.batches] == [16] * 4


OFFER = Offer(TrainConfig(distribution="ladies", self_term="exact"), (1730,), (0.1,))


@pytest.mark.parametrize(
    ("advice", "says"),
    [
        (
            Advice(0.1, 9999, OFFER, 0.002, 0.5),
            "For 10 % relative error a layer, use ladies, independent, exact self term, t = 1,730: "
            "2 ms a step; whole neighbourhoods (--method gcn-batched) are exact and take 500 ms a "
            "step.",
        ),
        (
            Advice(0.1, 9999, OFFER, 0.002, None),
            "For 10 % relative error a layer, use ladies, independent, exact self term, t = 1,730: "
            "2 ms a step.",
        ),
        (
            Advice(0.1, 9999, OFFER, 0.002, 0.001),
            "For 10 % relative error a layer, sampling does not pay: ladies, independent, exact "
            "self term, t = 1,730 takes 2 ms a step; whole neighbourhoods (--method gcn-batched) "
            "are exact and take 1 ms a step.",
        ),
        (
            Advice(0.05, 9999, None, None, None),
            "For 5 % relative error a layer, even t = 9,999, all nodes, is not enough; whole "
            "neighbourhoods (--method gcn-batched) are exact.",
        ),
    ],
    ids=["use", "use, too large to compare", "does not pay", "not enough"],
)
def test_the_answer_in_words(advice: Advice, says: str) -> None:
    assert advice.sentence == says


def test_tables_and_data_say_the_same(found: Diagnosis) -> None:
    data = json.loads(json.dumps(as_data(found), allow_nan=False))
    assert len(data["members"]) == len(member_table(found).rows) == 80
    assert sum(len(table.rows) for table in size_tables(found)) == len(data["curves"])
    assert "closed forms of the top layer are exact" in member_table(found).caption
    best = min(data["members"], key=lambda m: (-m["layer"], m.get("closed", m["drawn"])))
    assert best["distribution"] in member_table(found).rows[0][0]
    assert [advice["sentence"] for advice in data["advice"]] == [a.sentence for a in found.advice]


def test_a_graph_too_large_to_look_at_all_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows stand for all, with an interval, and there is no exact gradient."""
    monkeypatch.setattr("fastgcn.diagnose.convolutions._WORK", 1)
    monkeypatch.setattr("fastgcn.diagnose.session._LARGEST", 1)
    found = diagnose(GRAPH, quick(), targets=[1.0])
    assert not found.complete
    assert found.rows == 4
    assert found.full_seconds is None
    assert all(cost.gradient is None for cost in found.costs)
    assert "Estimated from 4 rows of each of 5 random batches" in member_table(found).caption
    assert all(m.closed is None or m.closed.margin for m in found.members)
    page = diagnosis_page(found)
    assert "Error of the gradient" not in page
    assert "Error of the convolution of layer 2 for its time" in page


@pytest.mark.parametrize("settings", [{"inductive": False}, {"multilabel": True}, {"sparse": True}])
def test_any_graph_and_network(settings: dict[str, Any]) -> None:
    inductive = settings.pop("inductive", True)
    graph = communities(**settings)
    config = quick(inductive=inductive, precompute=False, skip=True, norm="batch", dropout=0.5)
    found = diagnose(graph, config, targets=[1.0])
    assert (found.nodes, found.training_nodes) == (36 if inductive else 60, 36)
    assert "Over all 36 training nodes, in 3 batches" in member_table(found).caption
    assert [m.layer for m in found.members][:2] == [1, 2]


def test_one_batch_of_one_layer_without_its_history() -> None:
    found = diagnose(GRAPH, quick(history=True, batch_size=72, samples=20), targets=[1.0])
    caption = member_table(found).caption
    assert "Over all 72 training nodes, in one batch: closed forms are exact" in caption
    assert "The settings' history is left out" in caption
    assert as_data(found)["without_history"]
    plain = diagnose(GRAPH, quick(batch_size=72, samples=20), targets=[1.0])
    assert "history" not in member_table(plain).caption


def test_a_trained_network_has_errors_of_its_own() -> None:
    run = fastgcn.fit(GRAPH, quick(epochs=20, learning_rate=0.1))
    ours, random = (
        diagnose(GRAPH, run.config, model=model, targets=[1.0]) for model in (run.model, None)
    )
    assert ours.trained
    assert ours.members[0].error.value != pytest.approx(random.members[0].error.value, rel=1e-3)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (fastgcn.graphsage("mean"), {}, "got graphsage-mean, which draws neighbours"),
        (quick(hidden=()), {}, "nothing is sampled: the only layer is precomputed"),
        (quick(), {"targets": []}, "there must be at least one target error"),
        (quick(), {"targets": [0.0]}, "a target error must be above 0 and at most 10"),
        (quick(), {"model": fastgcn.GCN([5, 8, 3])}, "the model was trained on 5 features"),
        (quick(), {"model": fastgcn.GCN([6, 8, 4])}, "the model predicts 4 classes, one per node"),
    ],
)
def test_mistakes(config: TrainConfig, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        diagnose(GRAPH, config, **options)


def test_other_methods_are_diagnosed_as_if_sampled() -> None:
    found = diagnose(GRAPH, quick(method="gcn-batched", samples="auto"), targets=[1.0])
    assert (found.config.method, found.config.samples) == ("fastgcn", 72)


def test_the_command_on_digits(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    small = ["--set", "hidden=8", "--set", "batch_size=512", "--target", 0.3]
    text = run_cli(capfd, "diagnose", "digits", *small, "--out", page)
    assert text.code == 0, text.err
    assert "ladies, poisson, exact self term" in text.out
    assert "For 30 % relative error a layer" in text.out
    assert f"Page written to {page}" in text.err
    with chromium() as browser:
        for width in (PHONE, DESKTOP):
            for dark in (False, True):
                check_page(browser, page, width=width, dark=dark)


def test_the_command_on_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    fastgcn.fit(fastgcn.load("digits"), quick(samples=50, epochs=2), run_dir=folder)
    outcome = run_cli(
        capfd, "diagnose", "digits", "--run", folder, "--samples", 60, "--target", 0.5, "--json"
    )
    assert outcome.code == 0, outcome.err
    data = json.loads(outcome.out)
    assert (data["network"], data["samples"], data["nodes"]) == ("trained", 60, 1078)
    assert [advice["target"] for advice in data["advice"]] == [0.5]
    other = run_cli(capfd, "diagnose", "digits", "--run", folder, "--set", "hidden=9")
    assert other.code == 1
    assert "with --run the settings are those of the run" in other.err
    missing = run_cli(capfd, "diagnose", "digits", "--run", tmp_path / "nowhere")
    assert "nowhere is not a run" in missing.err


def test_a_page_for_which_there_is_no_folder_is_refused_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = run_cli(capfd, "diagnose", "digits", "--out", tmp_path / "no" / "page.html")
    assert outcome.code == 1
    assert "there is no folder" in outcome.err
    assert "Measuring" not in outcome.err
