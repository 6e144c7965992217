"""The tutorial's commands and its Python, as they are printed, on raw tables."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas
import pytest

from fastgcn.metrics import average_precision
from tests.cli_runner import run_cli
from tests.customers import Customers, raw_tables
from tests.thorough import THOROUGH

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text("utf-8")
(COMMANDS,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

# `make verify` runs it in full size.
N, PAYMENTS, NEW = (200_000, 2_000_000, 2_000) if THOROUGH else (10_000, 100_000, 500)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Customers]:
    folder = tmp_path_factory.mktemp("tutorial")
    old, new = raw_tables(N, PAYMENTS, NEW)
    old.write(folder)
    new.write(folder, prefix="new_")
    return folder, new


def check_scores(path: Path, new: Customers) -> None:
    """The new customers, each once, and frauds in front."""
    scores = pandas.read_csv(path, index_col="id")
    ids = new.nodes["customer"].to_pylist()
    assert sorted(scores.index) == sorted(ids)
    chance = scores["p_fraud"].loc[ids].to_numpy()
    assert np.isfinite(chance).all()
    score = average_precision(new.fraud, chance)
    print(f"new customers: average precision {score:.4f}")
    assert score > 0.8


# What every import of these tables must say, as patterns.
SAID = [
    "numbers its rows, as pandas writes them, and is not used",
    "nodes have no label",
    "the table has no split: 60, 20 and 20 % of each class",
    "column 'email' has another value for nearly every node",
    "column 'currency' has the one value 'EUR'",
    "the columns 'amount', 'kind', 'at' of",
    "edges are left out, because the node table does not have one of their ids",
    r"the node table has '0+\d+27' where the edge table has '\d+27'",
    "numbers with long tails, as quantiles",
    "categories with many values, hashed",
    "dates, as time, month, weekday and hour: 'signed_up', 'last_seen'",
    "text, as tf-idf of words, the commonest with a feature each: 'note'",
    "means, scales, categories and words are those of the training nodes",
    "the feature 'degree' is the logarithm",
]


def test_five_commands(
    bank: tuple[Path, Customers],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder, new = bank
    monkeypatch.chdir(folder)
    lines = [line.removeprefix("$ fastgcn ") for line in COMMANDS.splitlines()]
    assert len(lines) == 5
    said = {}
    for line in lines:
        words = shlex.split(line)
        outcome = run_cli(capfd, *words)
        assert outcome.code == 0, outcome.err
        said[words[0]] = outcome.out + outcome.err
    for sentence in SAID:
        assert re.search(sentence, said["import"]), sentence
    assert "Validation selects by average_precision" in said["train"]
    check_scores(folder / "scores.csv", new)
    unlabelled = pandas.read_csv(folder / "unlabelled.csv")
    assert 0.35 * N < len(unlabelled) < 0.45 * N


def test_fifteen_lines_of_python(
    bank: tuple[Path, Customers],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder, new = bank
    monkeypatch.chdir(folder)
    assert len([line for line in PYTHON.splitlines() if line.strip()]) <= 15
    names: dict[str, object] = {"__name__": "tutorial"}
    exec(compile(PYTHON, "tutorial.md", "exec"), names)
    graph, run = names["graph"], names["run"]
    notes = "\n".join(graph.imported["notes"])  # type: ignore[attr-defined]
    for sentence in SAID:
        assert re.search(sentence, notes), sentence
    assert run.metrics["metric"] == "average_precision"  # type: ignore[attr-defined]
    out, err = capfd.readouterr()
    assert "predicted" in out
    assert "epoch 1: loss" in err
    assert (folder / "training.png").stat().st_size > 10_000
    check_scores(folder / "scores.csv", new)
