"""The generator: what the config says comes out, the same bytes for the same seed."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.stats import chisquare

from fastgcn import Cleaning, Graph, fingerprint, open_store
from fastgcn.data import generate as module
from fastgcn.data.generate import PRESETS, GenerateConfig, generate
from fastgcn.data.generate_config import class_sizes, config_from
from fastgcn.data.generate_edges import Rows, _row_counts, wanted_degrees
from fastgcn.errors import InputError
from fastgcn.kernels.generate import draw_rows
from fastgcn.types import AnyArray, FloatArray

SMALL = GenerateConfig(nodes=3000, edges=20_000, features=24, classes=5, class_skew=0.5)


def made(folder: Path, config: GenerateConfig, **options: Any) -> Graph:
    generate(config, folder, **options)
    return open_store(folder)


def same_class(graph: Graph) -> float:
    assert graph.labels is not None
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
    return float(np.mean(graph.labels[rows] == graph.labels[graph.indices]))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return made(tmp_path_factory.mktemp("small") / "store", SMALL)


# --- The same seed, the same graph -----------------------------------------------------------


def file_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_seed_gives_the_same_bytes(tmp_path: Path, small: Graph) -> None:
    again = made(tmp_path / "a", SMALL)
    assert fingerprint(again) == fingerprint(small)
    generate(SMALL, tmp_path / "b")
    assert file_bytes(tmp_path / "a") == file_bytes(tmp_path / "b")


def test_another_seed_gives_another_graph(tmp_path: Path, small: Graph) -> None:
    other = made(tmp_path / "a", replace(SMALL, seed=1))
    assert other.n_edges == small.n_edges
    for name in ("indices", "features", "labels"):
        assert not np.array_equal(getattr(other, name), getattr(small, name)), name
    assert not np.array_equal(other.split.train, small.split.train)


def test_little_memory_and_other_threads_give_the_same_bytes(tmp_path: Path) -> None:
    # So many edges that 16 MB cut them into several batches and make the sorter spill, and
    # so many features that there are several blocks.
    config = GenerateConfig(nodes=5000, edges=400_000, features=512, classes=4)
    generate(config, tmp_path / "whole", threads=1)
    generate(config, tmp_path / "pieces", memory=1 << 24, threads=3)
    assert file_bytes(tmp_path / "whole") == file_bytes(tmp_path / "pieces")


@settings(deadline=None)
@given(st.integers(1, 50))
def test_batches_cut_the_rows_without_gap(edges: int) -> None:
    counts = np.array([0, 3, 0, 50, 1, 1, 7, 0, 0, 2, 0])
    empty: AnyArray = np.empty(0)
    rows = Rows(empty, empty, counts, empty, empty, False, np.uint64(0))
    batches = list(rows.batches(edges))
    covered = [row for first, last in batches for row in range(first, last)]
    assert covered == list(range(len(covered)))
    assert counts[covered].sum() == counts.sum()
    for first, last in batches:
        assert last == first + 1 or counts[first:last].sum() <= edges


# --- What the config says comes out ----------------------------------------------------------


def test_the_store_passes_the_full_check(small: Graph) -> None:
    checked = Graph(
        indptr=small.indptr,
        indices=small.indices,
        weights=small.weights,
        features=small.features,
        labels=small.labels,
        split=small.split,
        directed=False,
    )
    assert checked.cleaned == small.cleaned == Cleaning()
    assert fingerprint(checked) == fingerprint(small)
    assert small.features.dtype == np.float32
    assert (small.n_features, small.n_classes) == (24, 5)


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(60, 400),
    degree=st.floats(1.0, 10.0),
    classes=st.integers(1, 6),
    skew=st.floats(0, 1),
    homophily=st.floats(0.3, 0.8),
    exponent=st.floats(1.5, 4.0),
    stray=st.floats(0, 0.1),
    seed=st.integers(0, 2**70),
)
def test_counts_are_met_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    nodes: int,
    degree: float,
    classes: int,
    skew: float,
    homophily: float,
    exponent: float,
    stray: float,
    seed: int,
) -> None:
    config = GenerateConfig(
        nodes=nodes,
        edges=int(nodes * degree / 2),
        features=3,
        classes=classes,
        train=nodes // 2,
        val=7,
        test=11,
        homophily=homophily if classes > 1 else 1.0,
        class_skew=skew,
        degree_exponent=exponent,
        stray=stray,
        seed=seed,
    )
    graph = made(tmp_path_factory.mktemp("graph") / "store", config)
    assert graph.n_edges == config.edges
    assert graph.cleaned == Cleaning()
    assert [len(part) for _, part in graph.split.items()] == [nodes // 2, 7, 11]
    assert graph.labels is not None
    assert np.array_equal(np.bincount(graph.labels), class_sizes(config))
    graph.with_split(graph.split)  # checks that the parts are disjoint


def test_homophily_is_exact_without_strays(tmp_path: Path) -> None:
    graph = made(tmp_path / "store", replace(SMALL, stray=0.0, homophily=0.7))
    assert same_class(graph) == pytest.approx(0.7, abs=1e-12)


@pytest.mark.parametrize("homophily", [0.3, 0.6, 0.8])
def test_homophily_with_strays_is_near(tmp_path: Path, homophily: float) -> None:
    # The number of edges inside communities is fixed; how many of those join one class
    # depends on how much of the degrees the strays happen to have. With 10 % strays that
    # share has a standard deviation of about 0.01 here, where the top hub has 1 % of all ends.
    config = replace(SMALL, stray=0.1, homophily=homophily, max_degree=100)
    graph = made(tmp_path / "store", config)
    assert same_class(graph) == pytest.approx(homophily, abs=0.03)


def test_strays_have_edges_of_another_class_and_features_of_their_own(tmp_path: Path) -> None:
    config = replace(SMALL, stray=0.2, homophily=0.6, feature_signal=50.0)
    graph = made(tmp_path / "store", config)
    assert graph.labels is not None
    votes = np.zeros((graph.n_nodes, graph.n_classes))
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
    np.add.at(votes, (rows, graph.labels[graph.indices]), 1)
    outvoted = np.mean(votes.argmax(axis=1) != graph.labels)
    assert 0.12 < outvoted < 0.25  # a fifth, less those that swapped within a class
    features = np.asarray(graph.features)
    means = np.array([features[graph.labels == c].mean(axis=0) for c in range(5)])
    nearest = ((features[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(nearest, graph.labels)


def test_degrees_follow_the_power_law(tmp_path: Path) -> None:
    config = replace(SMALL, nodes=10_000, edges=100_000, degree_exponent=2.5, max_degree=500)
    degrees = np.sort(np.diff(made(tmp_path / "store", config).indptr))
    wanted = wanted_degrees(config)
    for share in (0.1, 0.5, 0.9, 0.99, 0.999):
        at = int(share * config.nodes)
        assert degrees[at] == pytest.approx(wanted[at], rel=0.2), share
    assert degrees[0] >= 3  # the lower end is 7: no node loses its edges by accident
    # 1 % of the nodes have 13 % of the ends; in a graph of Poisson degrees it were 1.6 %.
    assert degrees[-100:].sum() > 0.1 * degrees.sum()


@pytest.mark.parametrize("exponent", [1.2, 1.9, 2.0, 2.1, 3.0, 8.0])
def test_wanted_degrees_have_the_asked_mean_and_ends(exponent: float) -> None:
    config = replace(SMALL, nodes=100_000, edges=1_000_000, degree_exponent=exponent)
    degrees = wanted_degrees(config)
    assert degrees.mean() == pytest.approx(20, rel=1e-3)
    assert 0 < degrees[0] < degrees[-1] <= config.top_degree


def test_a_learner_without_edges_does_clearly_worse(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    config = replace(SMALL, edges=30_000, features=64, classes=8)
    graph = made(tmp_path / "store", config)
    n = graph.n_nodes
    ones = np.ones(len(graph.indices))
    adjacency = csr_array((ones, graph.indices, graph.indptr), shape=(n, n)) + eye_array(n)
    root = diags_array(1 / np.sqrt(adjacency.sum(axis=1)))
    propagated = root @ adjacency @ root @ np.asarray(graph.features)

    def score(inputs: FloatArray) -> float:
        assert graph.labels is not None
        train, test = graph.split.train, graph.split.test
        model = LogisticRegression(max_iter=300).fit(inputs[train], graph.labels[train])
        return float(model.score(inputs[test], graph.labels[test]))

    without, with_edges = score(np.asarray(graph.features)), score(propagated)
    assert 0.4 < without < 0.85
    assert with_edges > without + 0.1
    assert with_edges < 0.99


# --- The parts -------------------------------------------------------------------------------


def test_a_row_draws_by_weight_without_replacement() -> None:
    weights = np.array([5.0, 1.0, 2.0, 3.0, 4.0])  # row 0 has weight 5 and draws from the rest
    cumulative = np.concatenate(([0.0], np.cumsum(weights)))
    order, group = np.arange(5), np.zeros(5, np.int64)
    seen: dict[tuple[int, int], int] = dict.fromkeys(itertools.permutations(range(1, 5), 2), 0)
    source, target = np.empty(2, np.int32), np.empty(2, np.int32)
    counts, ends = np.array([2, 0, 0, 0, 0]), np.full(5, 5)
    draws = 20_000
    for seed in range(draws):
        draw_rows(
            0,
            1,
            counts,
            ends,
            cumulative,
            group,
            False,
            order,
            np.uint64(seed),
            source,
            target,
        )
        assert source.tolist() == [0, 0]
        seen[int(target[0]), int(target[1])] += 1
    chances = [weights[a] / 10 * weights[b] / (10 - weights[a]) for a, b in seen]
    # The seeds are fixed: a right sampler fails one choice of them in ten thousand.
    assert chisquare(list(seen.values()), draws * np.array(chances)).pvalue > 1e-4


def test_rows_between_groups_skip_their_own() -> None:
    group = np.array([0, 0, 1, 0, 1, 2])
    source, target = np.empty(3, np.int32), np.empty(3, np.int32)
    counts, ends = np.array([3, 0, 0, 0, 0, 0]), np.full(6, 6)
    cumulative, order = np.arange(7.0), np.arange(6)[::-1].copy()
    draw_rows(0, 1, counts, ends, cumulative, group, True, order, np.uint64(1), source, target)
    assert source.tolist() == [5, 5, 5]
    assert sorted(target.tolist()) == [0, 1, 3]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e6), st.integers(0, 50)), min_size=1, max_size=60),
    st.floats(0, 1),
)
def test_row_counts_sum_up_and_keep_to_the_room(
    rows: list[tuple[float, int]], filling: float
) -> None:
    share, room = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    total = int(filling * room.sum())
    counts = _row_counts(share, room, total)
    assert counts.sum() == total
    assert np.all((counts >= 0) & (counts <= room))


def test_row_counts_are_proportional_where_there_is_room() -> None:
    counts = _row_counts(np.array([1.0, 2.0, 3.0, 94.0]), np.array([100, 100, 100, 40]), 100)
    assert counts.tolist() == [10, 20, 30, 40]


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 500), st.floats(0, 5))
def test_class_sizes_sum_up_and_leave_no_class_empty(classes: int, more: int, skew: float) -> None:
    config = GenerateConfig(
        nodes=1000 + classes + more,
        edges=1,
        features=1,
        classes=classes,
        class_skew=skew,
        homophily=1.0,
        stray=0.0,
    )
    sizes = class_sizes(config)
    assert sizes.sum() == config.nodes
    assert sizes.min() >= 1
    assert np.all(np.diff(sizes) <= 0)


# --- Presets ---------------------------------------------------------------------------------


def test_presets_have_the_sizes_of_their_originals() -> None:
    reddit, products = PRESETS["reddit-sim"], PRESETS["products-sim"]
    assert (reddit.nodes, reddit.edges, reddit.features) == (232_965, 11_606_919, 602)
    assert (reddit.classes, reddit.train, reddit.val, reddit.test) == (41, 152_410, 23_699, 55_334)
    assert (products.nodes, products.edges, products.features) == (2_449_029, 61_859_140, 100)
    assert (products.classes, products.train) == (47, 196_615)
    assert (products.val, products.test) == (39_323, 2_213_091)
    assert all(config.name == name for name, config in PRESETS.items())


def test_reddit_sim_has_about_the_class_sizes_of_reddit(real_data: Path) -> None:
    path = real_data / "reddit" / "reddit_index_label.npz"
    if not path.is_file():
        pytest.skip("FASTGCN_DATA has no reddit/reddit_index_label.npz")
    with np.load(path, allow_pickle=False) as arrays:
        labels = np.concatenate([arrays[f"y_{part}"] for part in ("train", "val", "test")])
    true = np.sort(np.bincount(labels))[::-1]
    ours = class_sizes(PRESETS["reddit-sim"])
    assert np.mean(np.abs(np.log(ours / true))) < 0.25  # within a quarter, on average


def test_a_preset_can_be_changed_and_scaled() -> None:
    assert config_from("reddit-sim") == PRESETS["reddit-sim"]
    assert config_from("reddit-sim", seed=3) == replace(PRESETS["reddit-sim"], seed=3)
    tenth = config_from("reddit-sim", nodes=23_296, val=5)
    assert tenth.edges == pytest.approx(1_160_692, rel=1e-3)
    assert tenth.mean_degree == pytest.approx(PRESETS["reddit-sim"].mean_degree, rel=1e-3)
    assert (tenth.train, tenth.val, tenth.test) == (15_240, 5, 5_533)
    fields: dict[str, Any] = {"nodes": 3000, "edges": 20_000, "features": 24, "classes": 5}
    assert config_from(**fields, class_skew=0.5) == SMALL


@pytest.mark.parametrize(
    ("preset", "changes", "message"),
    [
        ("redit-sim", {}, "did you mean 'reddit-sim'"),
        (None, {"nodes": 10}, "edges must be given to generate a graph without a preset"),
        ("reddit-sim", {"nodes": "few"}, "nodes must be a whole number"),
        ("reddit-sim", {"homophilly": 0.5}, "did you mean 'homophily'"),
    ],
)
def test_a_preset_that_cannot_be_is_refused(
    preset: str | None, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        config_from(preset, **changes)


# --- What is wrong is said, and nothing is left behind ---------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name must be"),
        ({"nodes": 1}, "nodes must be a whole number of at least 2, got 1"),
        ({"nodes": None}, "nodes must be"),
        ({"nodes": "many"}, "nodes must be a whole number of at least 2, got 'many'"),
        ({"edges": 0}, "edges must be"),
        ({"edges": 1.5}, "edges must be"),
        ({"features": 0}, "features must be"),
        ({"features": True}, "features must be"),
        ({"classes": 0}, "classes must be"),
        ({"classes": 3001}, "classes must be at most nodes, 3,000"),
        ({"train": -1}, "train must be"),
        ({"val": -1}, "val must be"),
        ({"test": -1}, "test must be"),
        ({"train": 2900}, "train [+] val [+] test must be at most nodes, 3,000"),
        ({"homophily": 1.1}, "homophily must be a number of at least 0 and at most 1, got 1.1"),
        ({"homophily": float("nan")}, "homophily must be"),
        ({"homophily": 0.99, "stray": 0.1}, "homophily must lie between"),
        ({"homophily": 0.5, "classes": 1}, "homophily must be 1 where there is one class"),
        ({"feature_signal": -1.0}, "feature_signal must be"),
        ({"feature_signal": float("inf")}, "feature_signal must be"),
        ({"degree_exponent": 1.0}, "degree_exponent must be"),
        ({"max_degree": 0}, "max_degree must be"),
        ({"max_degree": 13}, "max_degree must be above the mean degree"),
        ({"class_skew": -0.1}, "class_skew must be"),
        ({"stray": 2}, "stray must be"),
        ({"stray": "some"}, "stray must be"),
        ({"seed": -1}, "seed must be"),
        ({"edges": 2_000_000}, "between nodes of one class, where there is room for"),
        ({"edges": 2_000_000, "homophily": 0.1}, "between nodes of two classes"),
    ],
)
def test_a_bad_config_is_refused_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"nodes": 3000, "edges": 20_000, "features": 24, "classes": 5}
    with pytest.raises(InputError, match=message) as caught:
        GenerateConfig(**(fields | changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"memory": 1000}, "memory must be at least"), ({"threads": 0}, "threads must be at least 1")],
)
def test_bad_options_are_refused(tmp_path: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate(SMALL, tmp_path / "store", **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_existing_store_is_replaced_only_by_force(tmp_path: Path) -> None:
    config = replace(SMALL, nodes=300, edges=900)
    first = fingerprint(made(tmp_path / "store", config))
    with pytest.raises(InputError, match="exists"):
        generate(replace(config, seed=1), tmp_path / "store")
    assert fingerprint(open_store(tmp_path / "store")) == first
    assert fingerprint(made(tmp_path / "store", replace(config, seed=1), force=True)) != first


def test_an_error_in_the_middle_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "rows_between", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(SMALL, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_a_kill_in_the_middle_leaves_no_store(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, time
        from fastgcn.data import generate as module
        module.rows_between = lambda *_: time.sleep(60)
        config = module.GenerateConfig(nodes=3000, edges=20_000, features=24, classes=5)
        module.generate(config, sys.argv[1])
        """
    )
    out = tmp_path / "store"
    process = subprocess.Popen([sys.executable, "-c", script, str(out)])
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("*/features.npy")):
            assert process.poll() is None, "the generator ended by itself"
            assert time.monotonic() < deadline, "the generator wrote no features"
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not out.exists()
    assert made(out, SMALL).n_edges == SMALL.edges


def test_the_config_is_kept_in_the_store(tmp_path: Path) -> None:
    from fastgcn.data.store import read_manifest

    config = replace(SMALL, nodes=300, edges=900)
    generate(config, tmp_path / "store")
    kept = read_manifest(tmp_path / "store")["provenance"]["generated"]
    assert GenerateConfig(**kept) == config


def test_importing_the_generator_loads_nothing_heavy() -> None:
    script = "import sys, fastgcn.data.generate; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert "fastgcn.data.generate" in loaded
    assert not {"numba", "torch", "pyarrow", "sklearn"} & set(loaded)
