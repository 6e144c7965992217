"""The README's figures: the default beside PyG, the paper's settings, and what is missed.

Nothing is measured here. A bound is missed where a table of claims on some page says so.
"""

import numpy as np

from benchmarks import accuracy, speed, tables
from benchmarks.accuracy import SEEDS, paper_cases
from benchmarks.pages import CLAIMS_HEAD, Experiment, mean_sd, settled
from benchmarks.peers.accuracy import OURS, Plan
from benchmarks.peers.paired import SEARCH, experiment, paired, scores, verdict
from benchmarks.results import Record, Results
from fastgcn.report.page import Content, Table

# The files of results behind the experiments whose claims count.
FILES = ("accuracy.jsonl", "speed.jsonl", "speed-cuda.jsonl", "tables.jsonl")
_NAMES = {
    "cora": "Cora", "citeseer": "Citeseer", "pubmed": "Pubmed", "cora_ml": "Cora-ML", "acm": "ACM",
    "amazon_photo": "Amazon Photo", "coauthor_cs": "Coauthor CS", "blogcatalog": "BlogCatalog",
    "wordnet": "WordNet",
}  # fmt: skip
_PAPER = ("FastGCN, importance", "FastGCN-transductive")


def experiments() -> list[Experiment]:
    return [
        Experiment(name=name, title=title, plan=lambda _: (), show=show, gathered=True)
        for name, title, show in (
            ("headline", "How good it is", _headline),
            ("missed", "What is missed", _missed),
        )
    ]


def _headline(results: Results) -> list[Content | None]:
    plan, rows = Plan(), []
    for data, name in _NAMES.items():
        cells = [c for c in plan.cells(data, range(plan.seeds)) if c.split == "random"]
        found = scores(results, cells)
        if found[OURS]:
            gap, error = paired(found[OURS], found[SEARCH])
            ours, theirs = (f"{100 * np.mean([*found[w].values()]):.1f}" for w in (OURS, SEARCH))
            tie = ", a tie" if verdict(gap, error) == "tie" else ""
            rows.append((name, ours, theirs, f"{100 * gap:+.2f} ± {100 * error:.2f}{tie}"))
    head = ("", "`fastgcn train`", "PyG, searched", "difference")
    paper = [
        f"{_NAMES[case.data]}, {case.split} split, {mean_sd(own)} (the paper: {case.published:.3f})"
        for case in paper_cases(SEEDS)
        if case.label in _PAPER and case.published and (own := case.test_scores(results))
    ]
    return [
        Table(head, rows, "Test micro-F1 in points, random splits 60/20/20") if rows else None,
        f"The paper's own settings (Algorithm 2, two layers of 16), {SEEDS} seeds, the rate chosen "
        f"on validation: {'; '.join(paper)}."
        if paper
        else None,
    ]


def _missed(results: Results) -> list[Content | None]:
    rows: list[str] = []
    measured = [
        experiment(Plan()),
        *accuracy.experiments(),
        tables.experiment(tables.Bank()),
        *speed.cpu_experiments(speed.FULL),
        *speed.gpu_experiments(speed.FULL),
    ]
    used: dict[str, Record] = {}
    for each in measured:
        content, _ = settled(each, results)
        used |= results.used
        missed = [
            f"{row[0]} {row[1]} (asked: {row[2]})"
            for part in content
            if isinstance(part, Table) and tuple(part.head) == CLAIMS_HEAD
            for row in part.rows
            if row[3] == "no"
        ]
        rows += [f"* {each.title}: {'; '.join(missed)}."] if missed else []
    results.used = used
    return ["\n".join(rows)]
