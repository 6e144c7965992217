"""The comparison of loaders: what it shows of results, and that its training learns."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.results import Results

from benchmarks import loader
from fastgcn.data.load import load
from fastgcn.report.page import Table


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "open_graph", lambda _: load("digits"))
    monkeypatch.setattr(loader, "DATA", ("wordnet",))
    monkeypatch.setattr(loader, "BATCH", 256)


def test_our_training_learns_and_counts_its_seconds() -> None:
    curve = loader.our_curve("wordnet", samples=300, limit=0.5)
    assert curve["seconds"] == sorted(curve["seconds"])
    assert max(curve["val_micro_f1"]) > 0.8


def test_tables_show_ratios_beside_their_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speeds(*_: Any) -> Any:
        each = {"rows": 10, "bytes": 1e6, "spread": 0.1}
        return {"ours": each | {"seconds": 0.01}, "peer": each | {"seconds": 0.06}}

    def duel(*_: Any) -> Any:
        return {
            "ours": {"seconds": [1.0, 2.0], "val_micro_f1": [0.5, 0.9]},
            "peer": {"seconds": [4.0, 8.0], "val_micro_f1": [0.4, 0.8]},
        }

    monkeypatch.setattr(loader, "speeds", speeds)
    monkeypatch.setattr(loader, "duel", duel)
    monkeypatch.setenv("FASTGCN_DGL_PYTHON", "python")
    monkeypatch.delenv("FASTGCN_PYG_PYTHON", raising=False)
    results = Results(tmp_path / "loader.jsonl")
    _, speed, score = loader.experiments()
    assert speed.show(results) == []
    for experiment in (speed, score):
        for measurement in experiment.plan(results):
            results.measure(measurement)
    table, claims = speed.show(results)
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == ["DGL NeighborSampler", "DGL LaborSampler"]
    assert isinstance(claims, Table)
    assert claims.rows[0][1:] == ("6", "at least 5", "yes")
    table, claims, *_ = score.show(results)
    assert isinstance(table, Table)
    assert table.rows[0][2:6] == ("0.8000", "8.0", "2", "0.25")
    assert isinstance(claims, Table)
    assert claims.rows[0][3] == "yes"
