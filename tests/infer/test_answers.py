"""Predictions as people need them: by own ids, as data frames, on standard output."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn import FastGCNClassifier, Graph, Run, fit, predict, predict_new, save
from fastgcn.data.layout import arrays_of, ids_of, rows_of
from fastgcn.data.store import open_store
from fastgcn.errors import InputError
from fastgcn.graph.graph import positions
from fastgcn.graph.ids import ID_ORDER, TextIds, find_ids, written_otherwise
from tests.cli_runner import run_cli
from tests.communities import communities

IDS = [f"node {i}" for i in range(60)]


def some_unlabelled() -> Graph:
    labels = np.array(communities().labels)
    labels[4::20] = -1
    graph = communities(labels=labels, node_ids=IDS)
    kept = np.setdiff1d(graph.split.test, np.flatnonzero(labels < 0))
    return graph.with_split(type(graph.split)(graph.split.train, graph.split.val, kept))


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of a small graph, and a run on it."""
    folder = tmp_path_factory.mktemp("answers")
    graph = some_unlabelled()
    save(graph, folder / "store")
    from fastgcn import load

    fit(load(str(folder / "store")), run_dir=folder / "run", preset="fast", epochs=3, device="cpu")
    return folder


@pytest.fixture
def run(where: Path) -> Run:
    return Run.load(where / "run")


def test_predictions_by_own_id_are_a_data_frame(run: Run) -> None:
    pytest.importorskip("pandas")
    graph = some_unlabelled()
    frame = predict(run, graph, ids=["node 7", "node 3"], as_frame=True)
    rows = predict(run, graph, [7, 3])
    assert list(frame.index) == ["node 7", "node 3"]
    assert list(frame.columns) == ["prediction", "p_class-0", "p_class-1", "p_class-2"]
    np.testing.assert_array_equal(frame.iloc[:, 1:].to_numpy(), rows)
    assert list(frame.prediction) == [f"class-{c}" for c in rows.argmax(1)]
    two = predict(run, graph, "unlabelled", as_frame=True, top=2)
    assert list(two.index) == [f"node {i}" for i in (4, 24, 44)]
    assert list(two.columns) == ["prediction", "class_1", "p_1", "class_2", "p_2"]
    assert (two.prediction == two.class_1).all()
    assert (two.p_1 >= two.p_2).all()


def test_questions_that_make_no_sense_are_refused(run: Run) -> None:
    graph = some_unlabelled()
    with pytest.raises(InputError, match="not both"):
        predict(run, graph, [1], ids=["node 1"])
    with pytest.raises(InputError, match="has no node 'node 99'"):
        predict(run, graph, ids=["node 99"])
    with pytest.raises(InputError, match="a list of your own ids"):
        predict(run, graph, ids="node 1")
    with pytest.raises(InputError, match="top must be from 1 to the 3 classes"):
        predict(run, graph, [1], as_frame=True, top=4)
    with pytest.raises(InputError, match="add as_frame=True"):
        predict(run, graph, [1], top=2)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="needs a run"):
        predict(run.model, graph, [1], as_frame=True)  # type: ignore[call-overload]


def test_results_on_standard_output(where: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = ("predict", where / "run", "--nodes", "unlabelled")
    as_csv = run_cli(capfd, *asked, "--out", "-")
    assert as_csv.code == 0, as_csv.err
    rows = list(csv.DictReader(io.StringIO(as_csv.out)))
    assert [row["id"] for row in rows] == ["node 4", "node 24", "node 44"]
    as_json = run_cli(capfd, *asked, "--json", "--top", "1")
    assert as_json.code == 0, as_json.err
    found = json.loads(as_json.out)
    assert found["nodes"] == 3
    assert [row["class_1"] for row in found["rows"]] == [row["prediction"] for row in rows]
    embedded = run_cli(capfd, "embed", where / "run", "--nodes", "node 3", "--json")
    (row,) = json.loads(embedded.out)["rows"]
    assert row["id"] == "node 3"
    assert isinstance(row["h_0"], float)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "--out FILE is needed"),
        (("--out", "-", "--json"), "leave out --out -"),
        (("--out", "p.csv", "--top", "9"), "top must be from 1 to the 3 classes"),
        (("--out", "p.txt"), "--out must end in"),
    ],
)
def test_wrong_outputs_are_noticed(
    where: Path, capfd: pytest.CaptureFixture[str], flags: tuple[str, ...], words: str
) -> None:
    ended = run_cli(capfd, "predict", where / "run", *flags)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.err


def test_sets_of_labels_have_no_unlabelled_node(capfd: pytest.CaptureFixture[str]) -> None:
    from fastgcn.graph.graph import parse_nodes

    with pytest.raises(InputError, match="none of them is unlabelled"):
        parse_nodes(communities(multilabel=True), "unlabelled")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["text", "list", "integers", "counted"])
def test_ids_are_found_by_an_index(kind: str) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.permutation(10**6)[:5_000] - 1_000
    ids: object = {
        "text": TextIds.pack([f"ü{i}" for i in numbers]),
        "list": [f"ü{i}" for i in numbers],
        "integers": numbers,
        "counted": None,
    }[kind]
    asked = rng.integers(5_000, size=50)
    known = asked if kind == "counted" else numbers[asked]
    words = [f"ü{i}" if kind in ("text", "list") else str(i) for i in known]
    other = ["", "x", "007", "9" * 30, "-0", "1.0", str(2**63)]
    for _ in range(2):  # made, then kept
        found = find_ids(ids, 5_000, [*words, *other])  # type: ignore[arg-type]
        expected = [*asked, *[-1] * len(other)]
        if kind == "counted":
            expected[len(asked) + 2] = 7  # "007"
        assert found.tolist() == expected


@pytest.mark.parametrize("kind", ["text", "integers"])
def test_a_store_keeps_an_index_of_its_ids(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are found as in memory, and no table of all ids is made."""
    rng = np.random.default_rng(0)
    numbers = rng.permutation(10**6)[:500] - 1_000
    ids = numbers if kind == "integers" else [f"ü{i}" for i in numbers]
    save(Graph.from_edges([0], [1], features=np.eye(500), node_ids=ids), tmp_path / "s")
    stored = open_store(tmp_path / "s", verify=True).node_ids
    assert stored is not None
    asked = rng.integers(500, size=50)
    words = [str(ids[i]) for i in asked] + ["", "x", "007", "9" * 30, str(numbers.max() + 1)]
    unindexed = find_ids(list(stored), 500, words)
    assert unindexed.tolist() == [*asked, *[-1] * 5]

    def no_table(n: int) -> None:
        raise AssertionError(f"a table of {n} ids was made")

    monkeypatch.setattr("fastgcn.kernels.edges.hash_table", no_table)
    assert find_ids(stored, 500, words).tolist() == unindexed.tolist()
    # A part of the ids, as a shard has, is not taken for the whole; older stores have no index.
    (tmp_path / "s" / ID_ORDER).rename(tmp_path / "order")
    with pytest.raises(AssertionError, match="a table of 500 ids"):
        find_ids(open_store(tmp_path / "s").node_ids, 500, words)
    (tmp_path / "order").rename(tmp_path / "s" / ID_ORDER)
    part = ids_of(rows_of(arrays_of(open_store(tmp_path / "s")), 0, 400))
    with pytest.raises(AssertionError, match="a table of 400 ids"):
        find_ids(part, 400, words)


@pytest.mark.parametrize(
    ("ids", "unknown", "said"),
    [
        (["0027", "b"], 27, "'0027' is known, and not '27'"),
        (np.array([27, 5]), "0027", "'27' is known, and not '0027'"),
        (["27"], "27.0", "'27' is known"),
        (["ab"], " AB ", "'ab' is known"),
        (["0"], "000", "'0' is known"),
        (["0027"], "28", ""),
    ],
)
def test_ids_that_are_written_in_another_way(ids: Any, unknown: Any, said: str) -> None:
    found = written_otherwise(ids, len(ids), unknown)
    assert said in found
    assert bool(said) == bool(found)


def test_nodes_by_text_are_told_of_ids(run: Run) -> None:
    with pytest.raises(InputError, match=r"give your own ids as ids=\[...\]"):
        predict(run, some_unlabelled(), ["node 3"])


def test_equal_ids_of_two_graphs_are_not_mixed_up() -> None:
    for shift in range(8):
        graph = communities(node_ids=[f"{(i + shift) % 60}" for i in range(60)])
        assert positions(graph, ["5"]).tolist() == [(5 - shift) % 60]


def test_a_new_node_must_have_a_new_id(run: Run) -> None:
    with pytest.raises(InputError, match="node_ids has 'node 3', which is a node"):
        predict_new(
            run, some_unlabelled(), features=np.zeros((1, 6)),
            source=["node 3"], target=["node 5"], node_ids=["node 3"],
        )  # fmt: skip


def test_the_classifier_uses_the_threshold() -> None:
    graph = communities(n=150, classes=2, class_names=["zebra", "ant"])
    classifier = FastGCNClassifier(preset="fast", metric="f1", epochs=3, device="cpu").fit(graph)
    decision = classifier.run_.model.decision
    assert decision.positive is not None
    column = list(classifier.classes_).index(graph.class_names[decision.positive])  # type: ignore[index]
    chance = classifier.predict_proba(graph)[:, column]
    expected = np.where(chance >= decision.threshold, *classifier.classes_[[column, 1 - column]])
    np.testing.assert_array_equal(classifier.predict(graph), expected)
