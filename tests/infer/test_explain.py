"""An explanation names the cause where it is known, and its effects are exact."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import fastgcn
from fastgcn import GCN, Graph, Run, Split, explain, fit, predict
from fastgcn.errors import InputError
from fastgcn.infer import explain as module
from tests.cli_runner import run_cli
from tests.communities import communities, quick
from tests.strategies import graphs

CAUSE = 3
SHOWN = 40  # nodes that are explained

# All kinds of convolutions: the paper's, own rows, the mean of neighbours, two networks in one.
KINDS: dict[str, dict[str, Any]] = {
    "paper": {"learning_rate": 0.03, "epochs": 60},
    "own rows": {"skip": True, "input_skip": True, "norm": "layer", "bias": True},
    "mean": {"method": "graphsage-mean", "normalization": "neighbors", "precompute": False},
    "pair": {"skip": True, "input_skip": True, "pair": True},
    "not precomputed": {"precompute": False, "skip": True, "jumping": "concat", "epochs": 40},
}


def trained(graph: Graph, kind: str) -> Run:
    base = {"hidden": 16, "samples": 300, "batch_size": 128, "epochs": 20, "learning_rate": 0.03}
    return fit(graph, quick(**(base | {"inductive": False} | KINDS[kind])))


def parts(nodes: Any) -> Split:
    turn = np.arange(len(nodes)) % 5
    return Split(nodes[turn < 3], nodes[turn == 3], nodes[turn == 4])


def graph_of_own_feature(n: int = 800) -> Graph:
    """The label of a node is the sign of its feature 3; features of neighbours are noise."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(n, 8))
    features[:, CAUSE] += np.sign(features[:, CAUSE])  # near zero, it would not matter much
    source, target = rng.integers(n, size=(2, n // 2))
    labels = (features[:, CAUSE] > 0).astype(int)
    return Graph.from_edges(
        source, target, features=features, labels=labels, split=parts(np.arange(n))
    )


def graph_of_informants(n: int = 1200) -> tuple[Graph, dict[int, int]]:
    """Half of the nodes have five neighbours, of which one has feature 3: its sign is the label."""
    rng = np.random.default_rng(2)
    asked, informants = np.arange(n // 2), rng.permutation(np.arange(n // 2, n))
    features = 0.4 * rng.normal(size=(n, 8))
    features[:, CAUSE] = 0
    features[informants, CAUSE] = rng.choice([-2, 2], len(informants))
    labels = np.full(n, -1)
    labels[asked] = features[informants, CAUSE] > 0
    others = [rng.permutation(asked) for _ in range(2)]  # both ways, so about four neighbours
    graph = Graph.from_edges(
        np.concatenate([asked, asked, asked]),
        np.concatenate([informants, *others]),
        features=features,
        labels=labels,
        split=parts(asked),
    )
    return graph, dict(zip(asked.tolist(), informants.tolist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_feature_of_the_node_itself_is_the_cause(kind: str) -> None:
    graph = graph_of_own_feature()
    run = trained(graph, kind)
    found = [explain(run, graph, v, top=3) for v in graph.split.test[:SHOWN]]
    first = sum(each.features[0].name == f"feature {CAUSE}" for each in found)
    assert first >= 0.9 * SHOWN  # by chance 0.125
    if kind not in ("paper", "not precomputed"):  # which mix own features with those of neighbours
        own = sum(abs(f.own) > abs(f.effect - f.own) for f in (each.features[0] for each in found))
        assert own >= 0.8 * SHOWN


@pytest.mark.parametrize("kind", KINDS)
def test_a_feature_of_one_neighbour_is_the_cause(kind: str) -> None:
    graph, informant = graph_of_informants()
    run = trained(graph, kind)
    assert run.metrics["test_micro_f1"] > 0.85, "there must be something to explain"
    asked = graph.split.test[:SHOWN].tolist()
    found = {v: explain(run, graph, v, top=3) for v in asked}
    named = f"feature {CAUSE}"
    assert sum(each.features[0].name == named for each in found.values()) >= 0.9 * SHOWN
    right = [v for v in asked if found[v].neighbors[0].id == informant[v]]
    assert len(right) >= 0.9 * SHOWN  # by chance about 0.05: the field has some twenty nodes
    assert sum(found[v].neighbors[0].feature == named for v in right) >= 0.9 * len(right)
    for v in right:  # it speaks for what is predicted, which is mostly its own sign
        assert found[v].neighbors[0].hops == 1
    assert sum(found[v].neighbors[0].effect > 0 for v in right) >= 0.8 * len(right)


@st.composite
def networks(draw: st.DrawFn) -> GCN:
    own = draw(st.booleans())
    layers = draw(st.integers(1, 3))
    model = GCN(
        [3, *[4] * (layers - 1), 2],
        bias=True,
        skip=own,
        input_skip=own,
        normalization=draw(st.sampled_from(["symmetric", "row", "neighbors"])),
        jumping=draw(st.sampled_from(["none", "concat", "max"])),
        norm=draw(st.sampled_from(["none", "layer"])),
        rng=torch.Generator().manual_seed(draw(st.integers(0, 9))),
    )
    return model.eval()


def log_odds(model: GCN, graph: Graph, node: int, target: str) -> float:
    p = predict(model, graph, [node])[0].astype(np.float64)
    # The others' sum, and not 1 - p, which has few digits if p is near 1.
    return float(np.log(p[int(target)]) - np.log(np.delete(p, int(target)).sum()))


@given(graphs(), networks())
def test_leaving_out_equals_a_graph_without_the_neighbour(graph: Graph, model: GCN) -> None:
    assume(graph.n_nodes > 1)
    node = 0
    found = explain(model, graph, node, top=graph.n_nodes)
    before = log_odds(model, graph, node, found.target)
    assert found.score == pytest.approx(before, abs=1e-4)
    assert found.output == pytest.approx(predict(model, graph, [node]).max(), abs=1e-5)
    reached = {each.id for each in found.neighbors}
    assert len(reached) == found.field - 1
    for other in range(1, graph.n_nodes):
        kept = np.setdiff1d(np.arange(graph.n_nodes), [other])
        after = log_odds(model, fastgcn.subgraph(graph, kept), node, found.target)
        if other in reached:
            effect = next(each.effect for each in found.neighbors if each.id == other)
        elif model.normalization == "symmetric":
            continue  # one hop further out, a node still changes a degree
        else:
            effect = 0.0
        assert effect == pytest.approx(before - after, abs=1e-4)


@given(graphs(), networks())
def test_effects_of_features_add_up_to_the_score(graph: Graph, model: GCN) -> None:
    found = explain(model, graph, 0, top=3)
    total = sum(each.effect for each in found.features)
    expected = found.score - found.baseline
    if abs(total - expected) <= 0.1 * max(abs(expected), 1):
        assert found.notes == ()
    else:  # a norm of a row that is nearly constant bends sharply, and 32 steps miss it
        assert found.notes[0].startswith("the effects of all features add up to")
        assert isinstance(model.norms[0], torch.nn.LayerNorm)


def test_the_rest_of_the_graph_is_not_read() -> None:
    """A path 0-1-...-9: two layers for node 0 need the nodes 0 to 2."""
    path = Graph.from_edges(range(9), range(1, 10), features=np.zeros((10, 2)))
    features = np.full((10, 2), np.nan, dtype=np.float32)
    features[:3] = np.arange(6).reshape(3, 2)
    poisoned = Graph.trusted(
        indptr=path.indptr, indices=path.indices, weights=None, features=features, directed=False,
        split=Split(train=np.array([0, 1])),
    )  # fmt: skip
    found = explain(GCN([2, 3, 2]), poisoned, 0)
    assert found.field == 3
    assert [each.hops for each in sorted(found.neighbors, key=lambda each: each.id)] == [1, 2]
    assert np.isfinite(found.score)
    with pytest.raises(InputError, match="feature 0 of node 3 is nan"):
        explain(GCN([2, 3, 2]), poisoned, 1)


def test_sparse_features_names_labels_and_classes() -> None:
    names = list("abcdef")
    ids = [f"n{i}" for i in range(60)]
    graph = communities(sparse=True, feature_names=names, node_ids=ids)
    run = fit(graph, quick(epochs=20))
    found = run.explain(graph, "n7", top=4)
    assert found.node == "n7"
    assert found.label in (graph.class_names or ())
    assert found.prediction == found.target
    assert len(found.features) == len(found.neighbors) == 4
    assert {each.name for each in found.features} <= set(names)
    assert isinstance(graph.features, csr_array)
    for each in found.features:
        assert each.value == pytest.approx(graph.features[[7], [names.index(each.name)]][0])
    for near in found.neighbors:
        assert near.id in ids
        assert near.label in (graph.class_names or ())
    sizes = [abs(each.effect) for each in found.neighbors]
    assert sizes == sorted(sizes, reverse=True)
    other = run.explain(graph, "n7", target="class-0")
    p = predict(run, graph, ids=["n7"])[0]
    assert other.output == pytest.approx(p[0], rel=1e-4)
    assert other.target == "class-0"
    assert run.explain(graph, "n7", target=0) == other
    assert json.loads(json.dumps(other.to_dict()))["node"] == "n7"


def test_several_labels_a_node() -> None:
    graph = communities(multilabel=True)
    run = fit(graph, quick(epochs=20))
    found = explain(run, graph, 5)
    p = predict(run, graph, [5])[0]
    assert found.output == pytest.approx(p.max(), rel=1e-4)
    named = [name for name, chance in zip(graph.class_names or (), p, strict=True) if chance > 0.5]
    assert found.prediction == "|".join(named)
    least = explain(run, graph, 5, target="class-0")
    assert least.output == pytest.approx(p[0], rel=1e-4)


def test_a_large_field_is_not_tried_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORK", 0)
    graph = communities()
    model = GCN([6, 8, 3])
    found = explain(model, graph, 0, top=100)
    assert found.field > module._FEWEST + 1
    assert len(found.neighbors) == module._FEWEST
    (note,) = found.notes
    assert note.startswith(f"20 of the {found.field - 1} nodes within 2 hops were left out in turn")


def test_a_node_without_neighbours() -> None:
    graph = Graph.from_edges([0], [1], features=np.eye(3))
    found = explain(GCN([3, 4, 2]), graph, 2)
    assert (found.neighbors, found.field) == ((), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node": "99"}, "has no node '99'"),
        ({"target": "class-9"}, "the run has no class 'class-9'; did you mean"),
        ({"target": 7}, "the run has no class '7'"),
        ({"top": 0}, "top must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], message: str) -> None:
    graph = communities()
    run = fit(graph, quick(epochs=1))
    with pytest.raises(InputError, match=re.escape(message)):
        run.explain(graph, **({"node": 1} | options))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store and a run of customers who churn if they are in Bonn; ids, text, gaps and dates."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(3)
    n = 300
    city = rng.choice(["Bonn", "Paris", "Oslo"], n)
    age = rng.integers(18, 90, n)
    lines = [
        f"c{i},{city[i]},{'' if i % 7 == 0 else age[i]},2024-0{1 + i % 9}-15,"
        f"{'yes' if city[i] == 'Bonn' else 'no'}"
        for i in range(n)
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,city,age,since,label", *lines]) + "\n")
    pairs = rng.integers(n, size=(n, 2))
    edges = "".join(f"c{a},c{b}\n" for a, b in pairs)
    (folder / "edges.csv").write_text("source,target\n" + edges)
    graph = Graph.from_tables(folder / "nodes.csv", folder / "edges.csv")
    fastgcn.save(graph, folder / "store")
    run = folder / "run"
    fit(
        fastgcn.load(folder / "store"), skip=True, input_skip=True, hidden=16, epochs=40,
        samples=100, preset="fast", run_dir=run, device="cpu", inductive=False,
    )  # fmt: skip
    return folder / "store", run


def test_columns_of_a_table(shop: tuple[Path, Path]) -> None:
    graph, run = fastgcn.load(shop[0]), Run.load(shop[1])
    rows = (shop[0].parent / "nodes.csv").read_text().splitlines()[1:]
    first = 0
    for number in range(20):
        own, city, age, since, _ = rows[number].split(",")
        found = run.explain(graph, own)
        values = {each.name: each.value for each in found.features}
        assert values["city"] == city
        assert values["age"] == ("missing" if not age else pytest.approx(float(age), abs=0.5))
        assert values["since"] == since
        assert set(values) == {"city", "age", "since", "degree"}
        first += found.features[0].name == "city"
    assert first >= 18


def test_the_command(
    shop: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, run = shop
    out = run_cli(capfd, "explain", run, "--node", "c3", "--picture", tmp_path / "c3.svg")
    assert out.code == 0, out.err
    assert "c3: predicted" in out.out
    assert re.search(r"city\s+(Bonn|Paris|Oslo)", out.out)
    assert "Neighbours by the effect of leaving them out" in out.out
    svg = (tmp_path / "c3.svg").read_text()
    assert svg.startswith("<svg")
    found = Run.load(run).explain(fastgcn.load(shop[0]), "c3", top=3)
    assert all(f">{each.id}<" in svg for each in found.neighbors)
    assert ">c3<" in svg
    out = run_cli(
        capfd, "explain", run, "--node", "c3", "--top", 3, "--json",
        "--picture", tmp_path / "c3.png",
    )  # fmt: skip
    assert out.code == 0, out.err
    data = json.loads(out.out)
    assert [each["id"] for each in data["neighbors"]] == [each.id for each in found.neighbors]
    assert data["features"][0]["name"] == found.features[0].name
    assert (tmp_path / "c3.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "--node ID is needed"),
        (["--node", "nobody"], "has no node 'nobody'"),
        (["--node", "c3", "--picture", "p.gif"], "--picture must end in .svg or .png"),
        (["--node", "c3", "--picture", "no/p.svg"], "there is no folder no"),
        (["--node", "c3", "--class", "yess"], "has no class 'yess'; did you mean 'yes'?"),
    ],
)
def test_mistakes_get_one_sentence(
    args: list[str],
    message: str,
    shop: tuple[Path, Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    out = run_cli(capfd, "explain", shop[1], *args)
    assert (out.code, out.out) == (1, "")
    assert message in out.err
