"""A table of customers: our default beside gradient-boosted trees, by ranking scores.

Both get the same tables, split and labels, and choose on validation. Ours is `import` and `train`
with nothing said. The trees are scikit-learn's, with encoders of their own: gaps and categories as
the trees take them, dates as numbers, a category of many values as its frequency, and text as
tf-idf of its commonest words. Trees see no edges; the last variant also gets the columns' means
over neighbours and the degree, which takes a user some lines of scipy.
"""

import tempfile
import time
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from scipy.sparse import csr_array, diags_array
from tests.customers import raw_tables

import fastgcn
from benchmarks.pages import Claim, Experiment, claims_table, from_records, short
from benchmarks.results import ON_CPU, Measurement, Record
from fastgcn.arrays import AnyArray, FloatArray
from fastgcn.metrics import average_precision, roc_auc
from fastgcn.report.page import Table

COLUMNS: dict[str, Any] = {
    "id": "customer", "label": "status", "source": "payer", "target": "payee", "weight": "times",
    "unknown": "drop",
}  # fmt: skip
RATES, LEAVES = (0.05, 0.1), (15, 31)
_WORDS = 100  # of the text, the commonest

_TREES = {
    "columns": "boosted trees, columns without text",
    "text": "boosted trees, columns and words",
    "neighbours": "boosted trees, columns, words and their means over neighbours, degree",
}


SEEDS = 3  # of ours; the trees are trained once


@dataclass(frozen=True, slots=True)
class Bank:
    """The sizes of the generated tables; `new` customers are left out of them."""

    customers: int = 200_000
    payments: int = 2_000_000
    new: int = 2_000


def experiment(bank: Bank, seeds: int = SEEDS) -> Experiment:
    """Ours with seeds 0..N-1, and the trees, whose validation chooses rate and leaves."""
    key = {"experiment": "tables", **asdict(bank)}
    found = {
        f"ours {seed}": Measurement(
            f"Training on the tables, seed {seed}",
            {**key, "how": "default", "seed": seed},
            partial(measure_ours, bank, seed),
            ("fastgcn.train.loop", "fastgcn.data.tables", *ON_CPU),
        )
        for seed in range(seeds)
    }
    for inputs, name in _TREES.items():
        found[inputs] = Measurement(
            name,
            {**key, "how": "trees", "inputs": inputs, "rates": RATES, "leaves": LEAVES},
            partial(measure_trees, bank, inputs),
            ("benchmarks.tables", "tests.customers"),
        )

    def show(records: dict[str, Record]) -> list[Table]:
        rows = []
        for which, each in records.items():
            ours = which.startswith("ours")
            name = f"`import` and `train`, seed {each['seed']}" if ours else _TREES[which]
            scores = [f"{each[part][s]:.4f}" for s in ("average_precision", "roc_auc")
                      for part in ("val", "test")]  # fmt: skip
            rows.append((name, *scores, short(each["seconds"])))
        head = ("", "AP, val", "AP, test", "ROC-AUC, val", "ROC-AUC, test", "s")
        what = f"{bank.customers:,} customers, {bank.payments:,} payments"
        caption = f"{what}; average precision (AP) and ROC-AUC of the frauds"
        ap = {which: each["test"]["average_precision"] for which, each in records.items()}
        ours = np.mean([score for which, score in ap.items() if which.startswith("ours")])
        claim = Claim(
            what="our average precision less that of the best trees",
            value=float(ours - max(ap[inputs] for inputs in _TREES)),
            at_least=0,
        )
        return [Table(head, rows, caption), claims_table([claim], "Ours beside the trees")]

    return from_records("tables", "A table of customers", found, show)


@cache
def _tables(bank: Bank) -> tuple[Any, fastgcn.Graph]:
    """The node table, and the graph of both tables as they are imported with nothing said."""
    old, _ = raw_tables(bank.customers, bank.payments, bank.new)
    with tempfile.TemporaryDirectory() as folder:
        nodes, edges = old.write(Path(folder))
        graph = fastgcn.Graph.from_tables(nodes, edges, **COLUMNS)
    return old.nodes, graph


def measure_ours(bank: Bank, seed: int) -> Record:
    _, graph = _tables(bank)
    start = time.perf_counter()
    run = fastgcn.fit(graph, seed=seed)
    found = {
        part: {s: run.metrics[f"{part}_{s}"] for s in ("average_precision", "roc_auc")}
        for part in ("val", "test")
    }
    return {**found, "seed": seed, "seconds": time.perf_counter() - start}


def measure_trees(bank: Bank, inputs: str) -> Record:
    """The trees that are best on validation, of all rates and numbers of leaves."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    table, graph = _tables(bank)
    assert graph.labels is not None
    truth = graph.labels == list(graph.class_names or ()).index("fraud")
    rows = inputs_of_trees(table, graph, inputs)
    parts = dict(graph.split.items())
    best: Record = {}
    start = time.perf_counter()
    for rate, leaves in product(RATES, LEAVES):
        trees = HistGradientBoostingClassifier(
            learning_rate=rate, max_leaf_nodes=leaves, max_iter=400, early_stopping=True,
            categorical_features="from_dtype", random_state=0,
        )  # fmt: skip
        train, val = parts["train"], parts["val"]
        trees.fit(rows.iloc[train], truth[train], X_val=rows.iloc[val], y_val=truth[val])
        found: Record = {"rate": rate, "leaves": leaves, "trees": int(trees.n_iter_)}
        for part in ("val", "test"):
            chance = trees.predict_proba(rows.iloc[parts[part]])[:, 1]
            found[part] = scores(truth[parts[part]], chance)
        if not best or found["val"]["average_precision"] > best["val"]["average_precision"]:
            best = found
    return {**best, "columns": rows.shape[1], "seconds": time.perf_counter() - start}


def scores(truth: AnyArray, chance: FloatArray) -> Record:
    return {
        "average_precision": float(average_precision(truth, chance)),
        "roc_auc": float(roc_auc(truth, chance)),
    }


def inputs_of_trees(table: Any, graph: fastgcn.Graph, inputs: str) -> pandas.DataFrame:
    """The columns as trees take them; what is counted is counted on the training nodes."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    train = graph.split.train
    frame = table.drop_columns(["", "customer", "status"]).to_pandas()
    found: dict[str, Any] = {}
    for name, column in frame.items():
        if name in ("note", "email") or column.iloc[train].nunique(dropna=False) == 1:
            continue  # words come below; another value for each customer, or one, says nothing
        if column.dtype.kind == "M":
            found[name] = (column - pandas.Timestamp(0)).dt.total_seconds()
        elif column.dtype.kind in "biuf" or column.dropna().isin([True, False]).all():
            found[name] = column.astype(float)
        elif column.nunique() <= 255:  # the most that the trees take
            found[name] = column.astype("category")
        else:
            found[name] = column.map(column.iloc[train].value_counts())
    if inputs != "columns":
        words = TfidfVectorizer(max_features=_WORDS).fit(frame["note"].iloc[train])
        values = words.transform(frame["note"]).toarray()
        found |= {
            f"word {name}": values[:, i] for i, name in enumerate(words.get_feature_names_out())
        }
    columns = pandas.DataFrame(found)
    if inputs != "neighbours":
        return columns
    codes = columns.apply(lambda each: each.cat.codes if each.dtype == "category" else each)
    filled = codes.fillna(codes.mean()).to_numpy(np.float64)
    means = neighbour_means(graph, filled)
    named = pandas.DataFrame(means, columns=[f"mean {i}" for i in range(means.shape[1])])
    return pandas.concat([columns, named], axis=1)


def neighbour_means(graph: fastgcn.Graph, rows: FloatArray) -> FloatArray:
    """(n, F + 1): weighted means of (n, F) over neighbours, and the number of neighbours."""
    matrix = csr_array(graph.to_scipy())
    sums = np.maximum(matrix.sum(axis=1), 1e-9)
    means = diags_array(1 / sums) @ (matrix @ rows)
    return np.hstack([means, np.diff(matrix.indptr)[:, None]])
