"""Settings: what is refused and in which words, round trips, and the paper's values."""

import dataclasses
import inspect
import json
import math
import pickle
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgcn import TrainConfig, authors_code, paper_cora, paper_pubmed, paper_reddit
from fastgcn.config import SETTINGS, Distribution, Draws, Norm
from fastgcn.errors import InputError
from fastgcn.settings import markdown_table

BAD_VALUES = [
    (
        "preset",
        "papre",
        "preset must be one of auto, fast, paper, got 'papre'; did you mean 'paper'?",
    ),
    ("hidden", 0, "hidden must be at least 1, got 0"),
    ("hidden", (16, 0), "hidden must be at least 1, got 0"),
    ("hidden", "16", "hidden must be a whole number or a list of them, got '16'"),
    ("hidden", 1.5, "hidden must be a whole number or a list of them, got 1.5"),
    ("bias", 1, "bias must be true or false, got 1"),
    ("dropout", 1.0, "dropout must be at least 0 and below 1, got 1.0"),
    ("dropout", -0.1, "dropout must be at least 0 and below 1, got -0.1"),
    ("dropout", float("nan"), "dropout must be a finite number or a list of them, got nan"),
    ("dropout", (0.5, 1.0), "dropout must be at least 0 and below 1, got 1.0"),
    (
        "dropout",
        (0.5, "0.5"),
        "dropout must be a finite number or a list of them, got (0.5, '0.5')",
    ),
    ("dropout", (0.5,), "for the input of each of 2 layers, got 1"),
    ("pair", 1, "pair must be true or false, got 1"),
    ("skip", 1, "skip must be true or false, got 1"),
    ("input_skip", "yes", "input_skip must be true or false, got 'yes'"),
    ("norm", "layers", "norm must be one of none, layer, batch, got 'layers'; did you mean"),
    ("jumping", True, "jumping must be one of none, concat, max, got True"),
    (
        "normalization",
        "symetric",
        "normalization must be one of symmetric, row, neighbors, sum, got 'symetric'; did you mean "
        "'symmetric'?",
    ),
    ("aggregator", "median", "aggregator must be one of convolution, mean, sum, max, attention"),
    ("heads", 0, "heads must be at least 1, got 0"),
    ("feature_scaling", "column", "must be one of none, row, standard, got 'column'"),
    ("method", "graphsage", "method must be one of fastgcn, gcn, gcn-batched, graphsage-gcn"),
    ("fanouts", (10, 0), "fanouts must be at least 1, got 0"),
    ("fanouts", 10, "fanouts must be a list of whole numbers, got 10"),
    ("fanouts", "10,25", "fanouts must be a list of whole numbers, got '10,25'"),
    ("precompute", "yes", "precompute must be true or false, got 'yes'"),
    ("samples", 0, "samples must be at least 1, got 0"),
    (
        "samples",
        (10, 10),
        "samples must be one number, or one for each sampled layer from the input up, 1 here",
    ),
    ("samples", True, "samples must be a whole number, a list of them or 'auto', got True"),
    ("samples", "many", "samples must be a whole number, a list of them or 'auto', got 'many'"),
    ("target_error", 0, "target_error must be above 0, got 0"),
    ("distribution", "importanse", "did you mean 'importance'?"),
    ("power", -1, "power must be at least 0 and at most 16, got -1"),
    ("power", 400, "power must be at least 0 and at most 16, got 400"),
    ("power", 2, "power is for distribution = 'flat' or 'ladies'; leave it out with distribution "),
    ("power", "two", "power must be a finite number, got 'two'"),
    ("draws", "poison", "got 'poison'; did you mean 'poisson'?"),
    ("self_term", True, "self_term must be one of sampled, exact, got True"),
    ("history", "yes", "history must be true or false, got 'yes'"),
    ("history_every", 0, "history_every must be at least 1, got 0"),
    ("neighbors_only", 0, "neighbors_only must be true or false, got 0"),
    ("correct_weights", "no", "correct_weights must be true or false, got 'no'"),
    ("batch_size", 0, "batch_size must be at least 1, got 0"),
    ("batch_size", 2.5, "batch_size must be a whole number, got 2.5"),
    ("epochs", 0, "epochs must be at least 1, got 0"),
    ("learning_rate", 0.0, "learning_rate must be above 0, got 0.0"),
    ("learning_rate", float("inf"), "learning_rate must be a finite number, got inf"),
    ("learning_rate", "fast", "learning_rate must be a finite number, got 'fast'"),
    ("weight_decay", -1e-4, "weight_decay must be at least 0, got -0.0001"),
    ("weight_decay", float("inf"), "weight_decay must be a finite number, got inf"),
    ("averaging", 1, "averaging must be at least 0 and below 1, got 1"),
    ("ensemble", 0, "ensemble must be at least 1 and at most 100, got 0"),
    ("weight_decay_on", "last", "weight_decay_on must be one of first, all, got 'last'"),
    ("loss", "l1", "loss must be one of auto, mse, huber, got 'l1'"),
    ("metric", "auc", "metric must be auto, micro_f1, "),
    ("calibrate", "yes", "calibrate must be true or false, got 'yes'"),
    ("class_weight", "even", "class_weight must be one of none, balanced, got 'even'"),
    ("drop_last", "true", "drop_last must be true or false, got 'true'"),
    ("early_stopping", "never", "early_stopping must be one of none, authors, patience"),
    ("patience", 0, "patience must be at least 1, got 0"),
    ("validate_every", 0, "validate_every must be at least 1, got 0"),
    ("validate_every", "often", "validate_every must be a whole number or 'auto', got 'often'"),
    ("validate_every", (1, 2), "validate_every must be a whole number or 'auto', got (1, 2)"),
    ("inductive", 1, "inductive must be true or false, got 1"),
    ("evaluation_graph", "some", "evaluation_graph must be one of all, joined, got 'some'"),
    ("seed", -1, f"seed must be at least 0 and at most {2**63 - 1}, got -1"),
    ("seed", 2**63, f"at most {2**63 - 1}, got {2**63}"),
    ("features", "disk", "features must be one of auto, device, host, got 'disk'"),
    ("products", "half", "products must be one of tf32, float32, got 'half'"),
    ("device", "gpu", "device must be auto, cpu or cuda[:N], got 'gpu'"),
    ("device", "cuda:x", "device must be auto, cpu or cuda[:N], got 'cuda:x'"),
    ("device", 0, "device must be text, got 0"),
    ("memory", "much", "memory must be at least 1MB, such as 500MB or 2GB, got 'much'"),
    ("memory", 4, "memory must be text, got 4"),
    ("inputs_dtype", "float61", "one of float32, float16, bfloat16, got 'float61'; did you mean"),
    ("threads", -1, "threads must be at least 0 and at most 4096, got -1"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD_VALUES)
def test_bad_values_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        TrainConfig(**{name: value}).complete()
    assert message in str(refused.value)


def test_every_field_has_a_bad_value_in_the_list_above() -> None:
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    assert names == {name for name, _, _ in BAD_VALUES}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"jumping": "max", "hidden": (8, 4)},
            "must have one width, got hidden = [8, 4]",
        ),
        (
            {"method": "gcn", "history": True},
            "history = true is for method = 'fastgcn', got 'gcn'",
        ),
        (
            {"distribution": "optimal", "history": True},
            "choose one of the two",
        ),
        (
            {"draws": "systematic", "correct_weights": False},
            "is for draws = 'independent' or 'successive', got draws = 'systematic'",
        ),
    ],
)
def test_settings_that_do_not_fit_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        TrainConfig(**settings)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, False),
        ({"skip": True}, True),
        ({"input_skip": True}, False),  # ÂX is precomputed, and X stands beside it
        ({"input_skip": True, "precompute": False}, True),
        ({"jumping": "max"}, True),
        ({"skip": True, "jumping": "concat", "hidden": ()}, False),
    ],
)
def test_who_needs_own_rows(settings: dict[str, Any], needed: bool) -> None:
    assert TrainConfig(**settings).needs_own_rows is needed


def test_settings_of_earlier_versions_are_read() -> None:
    """Before `draws` there was `replacement`, and none of what the network has learnt since."""
    new = ("skip", "norm", "jumping", "target_error", "power", "self_term", "history")
    for replacement, draws in ((True, "independent"), (False, "successive")):
        config = TrainConfig(seed=3, draws=draws).complete()  # type: ignore[arg-type]
        stored = config.to_dict()
        for name in (*new, "draws", "history_every"):
            del stored[name]
        old = TrainConfig.from_dict(stored | {"replacement": replacement})
        assert old.complete() == config
    with pytest.raises(InputError, match="replacement must be true or false, got None"):
        TrainConfig.from_dict({"replacement": None})


def test_a_power_belongs_to_its_distribution() -> None:
    ladies, plain = TrainConfig(distribution="ladies").complete(), TrainConfig().complete()
    assert TrainConfig(distribution="ladies", power=2).complete() == ladies
    assert TrainConfig(power=1.0).complete() == plain  # as earlier versions wrote it
    for sizes in (
        TrainConfig(distribution="ladies", power=1),
        TrainConfig(distribution="ladies", power=1).complete(),
    ):
        assert sizes.replace(seed=3).power == 1
        assert sizes.replace(distribution="uniform").power is None
        assert sizes.replace(distribution="flat", power=3).power == 3
    assert TrainConfig(power=3).replace(distribution="ladies").power == 3


def test_automatic_samples_have_to_be_settled() -> None:
    config = TrainConfig(samples="auto", hidden=(8, 8))
    with pytest.raises(InputError, match="samples = 'auto' has not been replaced by numbers yet"):
        _ = config.layer_samples
    assert config.replace(samples=(5, 7)).layer_samples == (5, 7)
    assert config.replace(method="gcn").layer_samples == ()


@pytest.mark.parametrize("build", [TrainConfig().replace, lambda **v: TrainConfig.from_dict(v)])
def test_unknown_settings_are_refused_with_the_nearest(build: Any) -> None:
    with pytest.raises(InputError, match="unknown setting 'learning_rat'; did you mean"):
        build(learning_rat=0.1)
    with pytest.raises(
        InputError, match="unknown setting 'zzz'; the settings are preset, method, seed"
    ):
        build(zzz=1)


@st.composite
def configs(draw: st.DrawFn) -> TrainConfig:
    hidden = draw(st.integers(1, 99) | st.lists(st.integers(1, 99), max_size=3))
    precompute = draw(st.booleans())
    layers = (1 if isinstance(hidden, int) else len(hidden)) + 1
    sampled = layers - precompute
    config = TrainConfig(
        hidden=hidden if isinstance(hidden, int) else tuple(hidden),
        precompute=precompute,
        samples=draw(
            st.integers(1, 99)
            | st.lists(st.integers(1, 99), min_size=sampled, max_size=sampled).map(tuple)
        ),
        distribution=draw(st.sampled_from(get_args(Distribution))),
        draws=draw(st.sampled_from(get_args(Draws))),
        skip=draw(st.booleans()),
        norm=draw(st.sampled_from(get_args(Norm))),
        learning_rate=draw(st.floats(1e-6, 1)),
        dropout=draw(
            st.floats(0, 0.99)
            | st.lists(st.floats(0, 0.99), min_size=layers, max_size=layers).map(tuple)
        ),
        seed=draw(st.integers(0, 2**63 - 1)),
        device=draw(st.sampled_from(["auto", "cpu", "cuda", "cuda:1"])),
        memory=draw(st.sampled_from(["auto", "500MB", "4 GB"])),
        inputs_dtype=draw(st.sampled_from(["float32", "float16", "bfloat16"])),
    )
    return config.complete() if draw(st.booleans()) else config


@settings(max_examples=60, deadline=None)
@given(configs())
def test_round_trips(config: TrainConfig) -> None:
    """Of configs with some settings given and with all."""
    through_json = json.loads(json.dumps(config.to_dict()))
    assert TrainConfig.from_dict(through_json) == config
    assert config.replace() == config
    other = config.replace(batch_size=config.batch_size + 1)
    assert other != config
    back = other.replace(batch_size=config.batch_size)
    assert back.complete() == config.complete()
    assert back.given == config.given | {"batch_size"}
    assert config.complete().replace(batch_size=config.batch_size) == config.complete()
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  (our own bytes)
    assert (config.complete() == config) == config.is_complete
    assert len(config.layer_samples) == config.sampled_layers == config.layers - config.precompute


def test_numbers_of_numpy_are_numbers() -> None:
    """Parameter searches draw numpy's numbers; they must not keep a config from being JSON."""
    config = TrainConfig(
        hidden=np.int64(16),  # type: ignore[arg-type]
        learning_rate=np.float32(0.5),  # type: ignore[arg-type]
        bias=np.bool_(True),  # type: ignore[arg-type]
        samples=[np.int32(7)],  # type: ignore[arg-type]
    )
    assert config == TrainConfig(hidden=16, learning_rate=0.5, bias=True, samples=(7,))
    assert json.loads(json.dumps(config.to_dict()))["hidden"] == 16


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_setting_is_described_wherever_it_is_listed(name: str) -> None:
    each = SETTINGS[name]
    assert each.help.endswith(".")
    for word in each.words:
        assert re.search(rf"(?<![\w-]){word}(?![\w-])", each.help), "every choice is explained"
    assert f"{name}: {each.help}" in (TrainConfig.__doc__ or "")
    assert each.help.replace("|", "\\|") in markdown_table(SETTINGS)
    shown = str(inspect.signature(TrainConfig).parameters[name])
    assert shown.endswith(f" = {'<automatic>' if each.automatic else repr(each.default)}")


def test_the_docs_have_the_table_of_settings() -> None:
    page = Path(__file__).parents[2] / "docs" / "training.md"
    assert markdown_table(SETTINGS) in page.read_text(encoding="utf-8"), (
        "docs/training.md is stale; put in what `python -m fastgcn.config` prints"
    )


def test_the_schema_says_what_is_accepted() -> None:
    """It refuses each bad value that needs no other setting and no code to be seen."""
    schema = TrainConfig.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert set(schema["properties"]) == set(SETTINGS)
    assert validator.is_valid(TrainConfig().complete().to_dict())
    assert validator.is_valid({"samples": "auto", "hidden": [8, 8], "validate_every": 3})
    assert not validator.is_valid({"epoch": 3})
    by_code = {"device", "memory", "metric"}
    with_others = {"power": 2, "samples": (10, 10), "dropout": (0.5,)}
    for name, value, _ in BAD_VALUES:
        if isinstance(value, float) and not math.isfinite(value):
            continue  # which JSON does not have
        if name not in by_code and with_others.get(name) != value:
            plain = list(value) if isinstance(value, tuple) else value
            assert not validator.is_valid({name: plain}), (name, value)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("preset", "hidden", "batch_size", "samples"),
    [(paper_cora, 16, 256, 400), (paper_pubmed, 16, 1024, 100), (paper_reddit, 128, 256, 400)],
)
def test_presets_are_the_papers(preset: Any, hidden: int, batch_size: int, samples: int) -> None:
    config = preset()
    assert config.layers == 2
    assert (config.hidden, config.batch_size, config.samples) == (hidden, batch_size, samples)
    assert config.distribution == "importance"
    assert config.learning_rate in (0.01, 0.001, 0.0001)
    assert config.dropout == 0
    assert config.inductive
    assert config.precompute
    assert config.draws == "independent"
    assert config.correct_weights
    assert not config.bias
    assert config.weight_decay == 0
    assert config.feature_scaling == "none"


def test_authors_code_departs_from_the_paper_where_their_program_does() -> None:
    paper, theirs = paper_pubmed().to_dict(), authors_code(paper_pubmed()).to_dict()
    assert {key: theirs[key] for key in theirs if theirs[key] != paper[key]} == {
        "distribution": "flat",
        "draws": "successive",
        "neighbors_only": True,
        "correct_weights": False,
        "drop_last": True,
        "weight_decay": 5e-4,
        "feature_scaling": "row",
        "early_stopping": "authors",
        "epochs": 200,
        "evaluation_graph": "joined",
    }
    assert theirs["weight_decay_on"] == "first"
    assert authors_code() == authors_code(paper_cora())
    assert authors_code(paper_reddit()).weight_decay == 1e-4
