"""What may be generated: the config's checks, its class sizes and the presets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgcn.data.generate import PRESETS, GenerateConfig
from fastgcn.data.generate_config import class_sizes, config_from
from fastgcn.errors import InputError

SMALL = GenerateConfig(nodes=3000, edges=20_000, features=24, classes=5, class_skew=0.5)


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
        ({"homophily": 0.5, "classes": 1}, "homophily must be 1 if there is one class"),
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
