"""The report of a run: what it computes, what it says, and for which runs it works."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastgcn
from fastgcn import Block, Graph, Run, Split, TrainConfig
from fastgcn.errors import InputError
from fastgcn.report import compare_report, run_report
from fastgcn.report.quality import confusion_matrix, evaluate_run, principal_plane
from fastgcn.report.training import measure_layers, vertices_met
from fastgcn.sampling.block import sparse_matrix
from fastgcn.train.presets import graphsage
from tests.cli_runner import run_cli
from tests.communities import communities, quick, with_only_training
from tests.regression import numbers

Capture = pytest.CaptureFixture[str]
SECTIONS = [
    "summary", "curves", "classes", "thresholds", "calibration", "worst", "degree", "map",
    "sampling", "time", "settings", "use", "data",
]  # fmt: skip


def section(page: str, name: str) -> str:
    """The words of one section."""
    (body,) = re.findall(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    body = re.sub(r"<style>.*?</style>", " ", body, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def report(graph: Graph, **settings: Any) -> str:
    return run_report(fastgcn.fit(graph, quick(**settings)), graph)


def predicted_by_hand(graph: Graph, run: Run) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    assert graph.labels is not None
    test = graph.split.test
    return graph.labels[test], fastgcn.predict(run, graph, test).argmax(axis=1)


@pytest.mark.parametrize(
    ("graph", "settings"),
    [
        (communities(), {}),
        (communities(), {"inductive": False, "epochs": 1}),
        (communities(multilabel=True), {}),
        (communities(directed=True, weighted=True, sparse=True), {"hidden": (8, 8)}),
        (communities(class_names=None, classes=5), {"distribution": "optimal"}),
        (communities(), {"hidden": ()}),
        (communities(), {"history": True, "self_term": "exact", "jumping": "concat"}),
        (communities(), {"hidden": 1}),
        (communities(), {"method": "gcn"}),
        (communities(), {"method": "gcn-batched", "precompute": False}),
        (communities(n=300, classes=41), {"hidden": 16}),
    ],
    ids=["inductive", "transductive", "multilabel", "directed", "no names", "one layer", "variants",
         "one unit", "gcn", "batched", "41 classes"],
)  # fmt: skip
def test_every_kind_of_run_has_a_whole_report(graph: Graph, settings: dict[str, Any]) -> None:
    page = report(graph, **settings)
    assert re.findall(r'<section id="(\w+)"', page) == SECTIONS
    assert "nan" not in re.sub(r"<[^>]+>", " ", page).split()


@pytest.mark.parametrize("kind", ["gcn", "mean"])
def test_graphsage_has_a_report(kind: Any) -> None:
    graph = communities()
    run = fastgcn.fit(graph, graphsage(kind, quick()).replace(fanouts=(3, 4)))
    text = section(run_report(run, graph), "sampling")
    assert "3 a row" in text
    assert "4 a row" in text


def test_the_confusion_matrix_counts_every_node() -> None:
    graph = communities()
    run = fastgcn.fit(graph, quick())
    truth, guess = predicted_by_hand(graph, run)
    matrix = confusion_matrix(evaluate_run(run, graph))
    assert matrix.sum() == len(truth)
    for (t, p), count in np.ndenumerate(matrix):
        assert count == np.sum((truth == t) & (guess == p))


def test_the_summary_beside_the_commonest_class() -> None:
    graph = communities()
    run = fastgcn.fit(graph, quick())
    truth, guess = predicted_by_hand(graph, run)
    commonest = np.bincount(truth).argmax()
    text = section(run_report(run, graph), "summary")
    assert f"right for {np.mean(truth == guess):.1%} of the test nodes" in text
    assert f"class-{commonest}, would be right for {np.mean(truth == commonest):.1%}" in text
    assert f"test, in training {run.metrics['test_micro_f1']:.4f}" in text
    assert "for this report" not in text, "the same scores are not listed twice"


def test_scores_on_another_graph_are_listed_beside_those_of_training() -> None:
    run = fastgcn.fit(communities(), quick(samples=2))
    page = run_report(run, communities(seed=1))
    assert "test, for this report" in section(page, "summary")
    assert "is not the one that the run was trained on" in section(page, "data")
    assert "of the batch nodes had no sampled vertex" in section(page, "sampling")
    assert "drawn anew" not in section(page, "sampling"), "it is another graph's"


def test_accuracy_by_degree() -> None:
    graph = communities(n=200)
    run = fastgcn.fit(graph, quick())
    truth, guess = predicted_by_hand(graph, run)
    degree = np.diff(graph.indptr)[graph.split.test]
    text = section(run_report(run, graph), "degree")
    lows = sorted({2 ** (int(d).bit_length() - 1) for d in degree})
    assert len(lows) > 1
    for low in lows:
        chosen = (degree >= low) & (degree < 2 * low)
        accuracy = np.mean(truth[chosen] == guess[chosen])
        assert f"{low}–{2 * low - 1} {chosen.sum()} {accuracy:.4f}" in text


def test_the_plane_of_most_variance() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(50, 2)) * [5, 2]
    turned = np.linalg.qr(rng.normal(size=(6, 6)))[0][:2]
    rows = (flat @ turned + 7).astype(np.float32)
    points, share = principal_plane(rows)
    assert share == pytest.approx(1, abs=1e-6)

    def distances(x: Any) -> Any:
        return np.linalg.norm(x[:, None] - x[None], axis=2)

    np.testing.assert_allclose(distances(points), distances(flat), atol=1e-4)
    assert points[:, 0].var() > points[:, 1].var()


@pytest.mark.parametrize("rows", [np.ones((4, 3)), np.ones((1, 5)), np.arange(4.0)[:, None]])
def test_rows_without_a_plane_still_have_a_map(rows: Any) -> None:
    points, share = principal_plane(rows)
    assert points.shape == (len(rows), 2)
    assert np.isfinite(points).all()
    assert share == 1


def test_vertices_met_are_counted_once_and_only_with_a_weight() -> None:
    ids = torch.arange(3)
    columns, weights = np.array([0, 1, 1, 0, 2]), np.array([1, 0.5, 0.5, 0, 2])
    adj = sparse_matrix(np.array([0, 3, 3, 5]), columns, weights, 3)
    assert vertices_met(Block(ids, ids, adj)).tolist() == [2, 0, 1]


def test_sampling_everything_leaves_no_row_empty() -> None:
    graph = communities()
    n = len(graph.split.train)
    everything = quick(samples=n, draws="successive", batch_size=n)
    (layer,) = measure_layers(everything, graph)
    assert layer.rows == n
    assert layer.met == pytest.approx(layer.neighbours)
    assert layer.empty == 0
    (few,) = measure_layers(quick(samples=1), graph)
    assert few.met == pytest.approx(1 - few.empty)
    assert few.empty > 0.5


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"method": "gcn"}, "gcn uses whole neighbourhoods"), ({"hidden": ()}, "precomputed")],
    ids=["gcn", "one layer"],
)
def test_methods_that_draw_nothing_say_so(settings: dict[str, Any], reason: str) -> None:
    text = section(report(communities(), **settings), "sampling")
    assert "Nothing was drawn" in text
    assert reason in text


def test_without_a_test_part_other_nodes_are_judged() -> None:
    graph = communities()
    validated = graph.with_split(Split(train=graph.split.train, val=graph.split.val))
    assert "12 validation nodes" in report(validated)
    page = report(with_only_training(graph))
    assert "36 training nodes" in page
    assert "no validation nodes, so the weights are those of the last epoch" in page


def test_unlabelled_test_nodes_are_left_out() -> None:
    graph = communities()
    assert graph.labels is not None
    labels = graph.labels.copy()
    labels[graph.split.test[:5]] = -1
    assert "7 test nodes" in report(communities(labels=labels))
    labels[graph.split.test] = -1
    assert "12 validation nodes" in report(communities(labels=labels))


def test_label_sets_may_be_empty() -> None:
    graph = communities(multilabel=True)
    run = fastgcn.fit(graph, quick())
    bare = communities(multilabel=True, labels=np.zeros((60, 3), bool))
    text = section(run_report(run, bare), "classes")
    assert "None of these nodes has a label" in text


def test_a_graph_without_labels_is_refused() -> None:
    run = fastgcn.fit(communities(), quick())
    with pytest.raises(InputError, match="communities has no labelled node in its split"):
        run_report(run, communities(labels=None, class_names=None))


def test_classes_that_are_not_the_runs_are_refused() -> None:
    run = fastgcn.fit(communities(), quick())
    with pytest.raises(InputError, match="class 0 is 'class-0' in the run and 'x' in the graph"):
        run_report(run, communities(class_names=["x", "y", "z"]))


def test_names_are_escaped() -> None:
    names = ["<script>alert(1)</script>", "a & b", '"quoted"']
    page = report(communities(class_names=names, name="<b>bold</b>"))
    assert page.count("<script") == 1
    assert "<script>alert" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "a &amp; b" in page


def test_settings_that_differ_come_first() -> None:
    text = section(report(communities(), samples=20, weight_decay=0.25), "settings")
    differing, everything = text.split("All settings")
    assert "weight_decay 0.25 0.0" in differing
    assert "bias" not in differing
    assert "bias false" in everything
    page = run_report(fastgcn.fit(communities(n=900), TrainConfig(epochs=1)), communities(n=900))
    assert "epochs 1 400" in section(page, "settings")


def test_a_loss_that_is_no_number_does_not_stop_the_report() -> None:
    graph = communities()
    run = fastgcn.fit(graph, quick())
    run.history[1]["train_loss"] = math.nan
    assert '<section id="curves"' in run_report(run, graph)


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "my digits"
    fastgcn.fit(fastgcn.load("digits"), quick(epochs=4), run_dir=folder)
    return folder


def test_the_command_writes_into_the_run(digits_run: Path, capfd: Capture) -> None:
    outcome = run_cli(capfd, "report", digits_run, "--json")
    assert outcome.code == 0, outcome.err
    told = json.loads(outcome.out)
    page = (digits_run / "report.html").read_bytes()
    assert told == {
        "run": str(digits_run), "out": str(digits_run / "report.html"), "bytes": len(page)
    }  # fmt: skip
    text = section(page.decode(), "use")
    assert f"fastgcn evaluate &#39;{digits_run}&#39;" in text
    assert "fastgcn.load(&#39;digits&#39;)" in text
    assert fastgcn.Run.load(digits_run).fingerprint in section(page.decode(), "data")


def test_the_commands_of_the_report_name_other_data(
    digits_run: Path, tmp_path: Path, capfd: Capture
) -> None:
    out = tmp_path / "r.html"
    outcome = run_cli(
        capfd, "report", digits_run, "digits", "--split", "random", "--split-seed", 3, "--out", out
    )
    assert outcome.code == 0, outcome.err
    assert f"Report written to {out}" in outcome.err
    assert "digits --split random --split-seed 3" in section(out.read_text(), "use")
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]


def test_the_python_lines_of_the_report_run(digits_run: Path) -> None:
    page = run_report(Run.load(digits_run), fastgcn.load("digits"))
    code = re.findall(r"<code>(import fastgcn.*?)</code>", page, re.DOTALL)[0]
    scope: dict[str, Any] = {}
    exec(code.replace("&#39;", "'"), scope)
    assert scope["probabilities"].shape == (3, 10)
    assert scope["rows"].shape == (3, 8)


def test_runs_that_cannot_be_reported_on(tmp_path: Path, capfd: Capture) -> None:
    missing = run_cli(capfd, "report", tmp_path / "none")
    assert missing.code == 1
    assert "is not a run" in missing.err
    fastgcn.fit(communities(), quick(), run_dir=tmp_path / "memory")
    in_memory = run_cli(capfd, "report", tmp_path / "memory")
    assert in_memory.code == 1
    assert "was trained on a graph made in memory; name the data to use" in in_memory.err
    store = tmp_path / "store"
    fastgcn.save(communities(), store)
    fastgcn.fit(fastgcn.load(store), quick(), run_dir=tmp_path / "stored")
    store.rename(tmp_path / "moved")
    gone = run_cli(capfd, "report", tmp_path / "stored")
    assert gone.code == 1
    assert f"there is no file or folder {store}" in gone.err
    assert run_cli(capfd, "report", tmp_path / "stored", tmp_path / "moved").code == 0
    (tmp_path / "stored" / "result.json").unlink()
    (tmp_path / "stored" / "state.safetensors").unlink()
    unfinished = run_cli(capfd, "report", tmp_path / "stored", tmp_path / "moved")
    assert unfinished.code == 1
    assert "has no epoch to use yet; continue it with: fastgcn train --resume" in unfinished.err


def test_a_run_in_memory_says_how_to_keep_it() -> None:
    assert "train with run_dir= to keep it on disk" in report(communities())


def test_training_loads_no_page_and_no_picture() -> None:
    """Neither does `samples = "auto"`, which training resolves by `fastgcn.diagnose.auto`."""
    program = (
        "import sys, fastgcn, fastgcn.train.loop, fastgcn.cli.train\n"
        "config = fastgcn.TrainConfig(samples='auto', target_error=0.9, hidden=8, epochs=1)\n"
        "fastgcn.fit(fastgcn.load('digits'), config)\n"
        "print([m for m in sys.modules if m.startswith(('fastgcn.report', 'fastgcn.diagnose.diag',"
        " 'vl_convert', 'jinja2.'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == "[]"


def test_the_worst_errors_have_their_own_ids() -> None:
    graph = communities()
    run = fastgcn.fit(graph, quick())
    found = evaluate_run(run, graph)
    classes = found.probabilities.argmax(axis=1)
    wrong = np.flatnonzero(classes != found.labels)
    assert wrong.size
    surest = wrong[found.probabilities[wrong, classes[wrong]].argmax()]
    own = [f"own-{i}" for i in range(graph.n_nodes)]
    named = communities(node_ids=own)
    rows = re.findall(r'<th scope="row"[^>]*><span>([^<]*)', run_report(run, named))
    listed = [cell for cell in rows if cell.startswith("own-")]
    assert listed[0] == own[found.nodes[surest]]
    assert len(listed) == min(15, wrong.size)


def test_curves_have_the_areas_that_sklearn_computes() -> None:
    from sklearn.metrics import average_precision_score

    graph = communities()
    run = fastgcn.fit(graph, quick())
    found = evaluate_run(run, graph)
    truth = np.asarray(found.labels) == 0
    area = average_precision_score(truth, found.probabilities[:, 0])
    assert f"{found.names[0]} {area:.4f}" in section(run_report(run, graph), "thresholds")


def test_calibration_counts_every_node_once() -> None:
    text = section(report(communities()), "calibration")
    counts = re.findall(r"\d\.\d to \d\.\d (\d+) ", text)
    assert sum(map(int, counts)) == len(communities().split.test)


def test_the_report_lists_what_the_race_tried() -> None:
    graph = communities()
    run = fastgcn.fit(graph, quick())
    assert '<section id="choice"' not in run_report(run, graph)
    each = {"epochs": 40, "metric": "loss", "val_micro_f1": 0.9}
    tried = [
        each | {"name": "first", "value": 0.3, "val_loss": 0.3, "kept": True},
        each | {"name": "second", "value": 0.5, "val_loss": 0.5, "kept": False},
    ]
    run.metrics["choice"] = {"why": "first of 2", "seconds": 1.5, "tried": tried}
    page = run_report(run, graph)
    text = section(page, "choice")
    assert "the best is first, 40 epochs (chosen), 0.3000" in page
    assert "(chosen)" in text
    assert "lower is better" in text
    assert "highest" not in text


def test_the_command_compares_runs(digits_run: Path, tmp_path: Path, capfd: Capture) -> None:
    other = tmp_path / "other"
    config = TrainConfig(hidden=8, samples=100, epochs=3, seed=1)
    fastgcn.fit(fastgcn.load("digits"), config, run_dir=other)
    done = run_cli(capfd, "report", digits_run, other, "--out", tmp_path / "c.html", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["runs"] == [str(digits_run), str(other)]
    page = (tmp_path / "c.html").read_text()
    assert re.findall(r'<section id="(\w+)"', page) == [
        "scores", "curves", "classes", "nodes", "time", "settings"
    ]  # fmt: skip
    assert "seed 0 1" in section(page, "settings")
    scores = section(page, "scores")
    for folder in (digits_run, other):
        assert f"{Run.load(folder).metrics['test_micro_f1']:.4f}" in scores
    both = re.search(r"digits other (\d+) (\d+) (\d+) (\d+)", section(page, "nodes"))
    assert both is not None
    assert sum(map(int, both.groups())) == len(fastgcn.load("digits").split.test)


def test_runs_of_other_kinds_are_not_compared() -> None:
    graph, other = communities(), numbers(n=80)
    runs = [fastgcn.fit(each, quick()) for each in (graph, other)]
    with pytest.raises(InputError, match="cannot be compared"):
        compare_report(runs, [graph, other])
