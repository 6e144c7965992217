"""Importing, generating and opening: small ones, from end to end."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.data_costs import TINY, Tables, generate_experiment, import_experiment
from benchmarks.pages import measure
from benchmarks.results import Record, Results

from benchmarks import data_costs


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own take seconds each; `test_speed` starts one."""

    def here(function: Callable[..., Record], *args: Any) -> Record:
        return {"seconds": 1.0, "peak": 1e6} | function(*args)

    monkeypatch.setattr(data_costs, "fresh", here)


def test_importing_is_compared_with_scipy(tmp_path: Path) -> None:
    tables = Tables(edges=200, nodes=50, features=2, ids="text")
    experiment, results = import_experiment(tables, repeats=1), Results(tmp_path / "r.jsonl")
    assert measure([experiment], results) == 2
    (table,) = experiment.show(results)
    assert [row[0] for row in table.rows] == ["csv", "parquet"]  # type: ignore[union-attr]


def test_generating_is_compared_with_writing(tmp_path: Path) -> None:
    other = dataclasses.replace(TINY, name="other")
    experiment = generate_experiment(tmp_path, other, dataclasses.replace(TINY, name="opened"))
    results = Results(tmp_path / "r.jsonl")
    assert measure([experiment], results) == 1
    (table,) = experiment.show(results)
    assert len(table.rows) == 3  # type: ignore[union-attr]
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]
