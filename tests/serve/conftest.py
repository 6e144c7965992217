"""A bank's customers in a store, two runs on it, and a service that all tests of a module share."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fastgcn
from fastgcn.data.tables import import_tables
from tests.customers import Customers, customers
from tests.serve.server import Client, serving

FAST: dict[str, Any] = {"epochs": 2, "hidden": 8, "samples": 50, "threads": 1, "device": "cpu"}


@dataclass(frozen=True)
class Bank:
    """The tables, the graph, and the folder with the runs `one` and `two`."""

    tables: Customers
    graph: fastgcn.Graph
    runs: Path

    def run(self, name: str = "one") -> fastgcn.Run:
        return fastgcn.Run.load(self.runs / name)

    def new_row(self, **changes: Any) -> dict[str, Any]:
        """The first customer under the id X0, as JSON has it."""
        row = self.tables.nodes.slice(0, 1).drop_columns(["status"]).to_pylist()[0]
        plain = {
            k: v if v is None or type(v) in (int, float, bool) else str(v) for k, v in row.items()
        }
        return plain | {"customer": "X0"} | changes


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    folder = tmp_path_factory.mktemp("bank")
    tables = customers(300, 1200)
    nodes, edges = tables.write(folder)
    import_tables(
        nodes, edges, folder / "store", id="customer", label="status", source="payer",
        target="payee", weight="times",
    )  # fmt: skip
    graph = fastgcn.load(folder / "store")
    for seed, name in enumerate(("one", "two")):
        fastgcn.fit(graph, run_dir=folder / "runs" / name, seed=seed, **FAST)
    return Bank(tables, graph, folder / "runs")


@pytest.fixture(scope="module")
def service(bank: Bank) -> Iterator[Client]:
    with serving(bank.runs / "one", runs=bank.runs, body=100_000, nodes=200, edges=300) as client:
        yield client
