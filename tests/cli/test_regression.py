"""Numbers to predict by the commands and the estimator, from two tables to answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score

import fastgcn
from fastgcn import FastGCNClassifier, FastGCNRegressor, Graph, Run
from fastgcn.errors import InputError
from fastgcn.report import run_report
from tests.backends.ranks.launch import run_ranks
from tests.cli_runner import run_cli
from tests.communities import communities, quick
from tests.regression import neighbour_means, numbers

Capture = pytest.CaptureFixture[str]
QUICK = ["--set", "hidden=8", "--epochs", 3, "--samples", 100, "--batch-size", 64, "--fast",
         "--device", "cpu"]  # fmt: skip


def write_tables(folder: Path, n: int = 300) -> tuple[Path, Path]:
    """People whose income depends on their neighbours' age; some incomes are missing."""
    rng = np.random.default_rng(0)
    ends = rng.integers(n, size=(2, 3 * n))
    x = rng.normal(size=(n, 2)).astype(np.float32)
    income = 30_000 + 9_000 * (x[:, 0] + 2 * neighbour_means(ends, x)[:, 1])
    ids = [f"p{i}" for i in range(n)]
    table = pd.DataFrame({"id": ids, "height": x[:, 0], "age": x[:, 1], "income": income.round(2)})
    table.loc[::15, "income"] = None
    table["city"] = rng.choice(["a", "b"], n)
    edges = pd.DataFrame({"source": [ids[i] for i in ends[0]], "target": [ids[i] for i in ends[1]]})
    table.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return folder / "nodes.csv", folder / "edges.csv"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store and a finished run on it."""
    folder = tmp_path_factory.mktemp("regression")
    nodes, edges = write_tables(folder)
    graph = Graph.from_tables(nodes, edges, label="income")
    fastgcn.save(graph, folder / "store")
    graph = fastgcn.load(folder / "store")
    fastgcn.fit(graph, quick(epochs=3), run_dir=folder / "run")
    return folder / "store", folder / "run"


def test_from_tables_to_answers(tmp_path: Path, capfd: Capture) -> None:
    nodes, edges = write_tables(tmp_path)
    store, run = tmp_path / "store", tmp_path / "run"
    done = run_cli(capfd, "import", "--nodes", nodes, "--edges", edges, "--label", "income",
                   "--out", store)  # fmt: skip
    assert done.code == 0, done.err
    assert "the target 'income' has 280 distinct numbers: trained as regression" in done.err
    assert "60, 20 and 20 % of the nodes with a target" in done.err
    assert "20 of 300 nodes have no label" in done.err
    info = run_cli(capfd, "info", store)
    assert "target (min / mean / max" in info.out
    assert "correlation of targets along edges" in info.out
    facts = json.loads(run_cli(capfd, "info", store, "--json").out)
    assert facts["task"] == "regression"
    assert facts["target"]["mean"] == pytest.approx(30_000, rel=0.1)
    done = run_cli(capfd, "train", store, "--run-dir", run, *QUICK)
    assert done.code == 0, done.err
    assert "Trained as regression, by the squared error" in done.err
    assert "val R² " in done.err
    assert "MAE" in done.out
    assert "F1" not in done.out + done.err
    scores = json.loads(run_cli(capfd, "evaluate", run, "--json").out)
    assert {"r2", "mae", "rmse", "loss"} <= scores.keys()
    assert "classes" not in scores
    assert "micro_f1" not in scores
    assert "rmse" in run_cli(capfd, "evaluate", run).out
    done = run_cli(capfd, "predict", run, "--nodes", "unlabelled", "--out", tmp_path / "p.csv")
    assert done.code == 0, done.err
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == ["id", "prediction"]
    assert len(found) == 20
    assert found["prediction"].dtype == np.float64
    assert found["prediction"].between(-1e5, 2e5).all()
    new = tmp_path / "new.csv"
    new.write_text("id,height,age,city\nz1,0.5,1.0,a\nz2,,0.1,c\n")
    (tmp_path / "new_edges.csv").write_text("source,target\nz1,p1\nz2,p2\n")
    done = run_cli(capfd, "predict", run, "--new-nodes", new, "--new-edges",
                   tmp_path / "new_edges.csv", "--json")  # fmt: skip
    rows = json.loads(done.out)["rows"]
    assert [row["id"] for row in rows] == ["z1", "z2"]
    assert all(isinstance(row["prediction"], float) for row in rows)
    done = run_cli(capfd, "explain", run, "--node", "p1")
    assert done.code == 0, done.err
    assert "Features by their effect on the number" in done.out
    assert "log-odds" not in done.out
    assert run_cli(capfd, "report", run).code == 0
    assert "R²" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["predict", "RUN", "--top", "2", "--out", "-"],
            "top is for classes, and the run predicts",
        ),
        (["train", "STORE", "--metric", "f1", "--run-dir", "x"], "metric = 'f1' is for classes"),
        (["train", "STORE", "--class-weight", "balanced", "--run-dir", "x"], "is for classes"),
        (["train", "STORE", "--loss", "mae", "--run-dir", "x"], "loss must be"),
        (["explain", "RUN", "--node", "p1", "--class", "a"], "predicts a number and has no class"),
        (["import", "STORE", "--task", "regression", "--out", "y"], "--task is for tables"),
    ],
)
def test_refusals(
    trained: tuple[Path, Path], words: list[str], message: str, capfd: Capture
) -> None:
    places = dict(zip(("STORE", "RUN"), map(str, trained), strict=True))
    done = run_cli(capfd, *(places.get(word, word) for word in words))
    assert done.code == 1
    assert message in done.err
    assert "Traceback" not in done.err


def test_the_report_has_errors_instead_of_classes(trained: tuple[Path, Path]) -> None:
    graph, run = fastgcn.load(trained[0]), Run.load(trained[1])
    page = run_report(run, graph)
    for text in ("Predicted against true numbers", "Residuals, in RMSE", "Errors by size of the",
                 'id="errors"', "always naming the mean of the training nodes", "Validation R²",
                 "numbers = fastgcn.predict", "a number a node"):  # fmt: skip
        assert text in page, text
    for text in ("micro-F1", "Micro-F1", "onfusion", 'id="classes"', "cross entropy"):
        assert text not in page, text


def test_predictions_as_a_frame_and_for_new_nodes(trained: tuple[Path, Path]) -> None:
    graph, run = fastgcn.load(trained[0]), Run.load(trained[1])
    frame = fastgcn.predict(run, graph, ids=["p3", "p1"], as_frame=True)
    assert list(frame.columns) == ["prediction"]
    assert frame.loc["p1", "prediction"] == fastgcn.predict(run, graph, ids=["p1"])[0]
    new = fastgcn.predict_new(
        run, graph, features=np.asarray(graph.features)[:2], source=["n"], target=["p1"],
        node_ids=["n", "m"],
    )  # fmt: skip
    assert new.shape == (2,)
    assert new.dtype == np.float64


def test_an_explanation_adds_up_to_the_number(trained: tuple[Path, Path]) -> None:
    graph, run = fastgcn.load(trained[0]), Run.load(trained[1])
    found = fastgcn.explain(run, graph, "p1", top=100)
    (number,) = fastgcn.predict(run, graph, ids=["p1"])
    assert found.output == pytest.approx(number, rel=1e-6)
    assert found.score == pytest.approx(number, rel=1e-6)
    total = sum(each.effect for each in found.features)
    assert found.baseline + total == pytest.approx(number, rel=2e-3)
    assert all(each.effect == each.change for each in found.neighbors)


def test_several_processes(tmp_path: Path, capfd: Capture) -> None:
    graph = numbers()
    fastgcn.save(graph, tmp_path / "store")
    assert run_cli(capfd, "shard", tmp_path / "store", "--out", tmp_path / "parts").code == 0
    train = ["-m", "fastgcn", "train", "parts", "--run-dir", "run", *QUICK, "--loss", "huber"]
    done = run_ranks(2, *train, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    alone = fastgcn.fit(graph, Run.load(tmp_path / "run").config)
    found = fastgcn.predict(Run.load(tmp_path / "run"), graph)
    np.testing.assert_allclose(found, fastgcn.predict(alone, graph), rtol=1e-3)


def test_the_regressor_follows_scikit_learn() -> None:
    graph = numbers()
    settings: dict[str, Any] = quick(epochs=3).to_dict()
    regressor = FastGCNRegressor(graph, **settings)
    assert is_regressor(regressor)
    assert clone(regressor).get_params()["epochs"] == 3
    nodes = np.flatnonzero(~np.isnan(np.asarray(graph.labels)))
    truth = np.asarray(graph.labels)[nodes]
    regressor.fit(nodes[:200], truth[:200])
    found = regressor.predict(nodes[200:])
    assert found.shape == (len(nodes) - 200,)
    assert regressor.score(nodes[200:], truth[200:]) == pytest.approx(r2_score(truth[200:], found))
    assert regressor.score(graph) == regressor.score(graph.split.test)
    assert len(cross_val_score(regressor, nodes, truth, cv=2)) == 2
    assert FastGCNRegressor(**settings).fit(graph).transform([0, 1]).shape == (2, 8)
    other = FastGCNRegressor(communities(), **settings).fit(np.arange(40), np.arange(40) / 3)
    assert other.graph_.regression
    with pytest.raises(InputError, match="has classes, which FastGCNClassifier predicts"):
        FastGCNRegressor().fit(communities())
    with pytest.raises(InputError, match="FastGCNRegressor does that"):
        FastGCNClassifier().fit(graph)
    with pytest.raises(InputError, match="y must|one number a node"):
        regressor.fit(nodes[:10], truth[:9])
