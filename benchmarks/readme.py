"""The README's figures: the default beside PyG, the paper's settings, and what is missed.

Nothing is measured here. A bound is missed where a table of claims on some page says so.
"""

from collections import Counter

import numpy as np

from benchmarks import accuracy, loader, speed, tables
from benchmarks.accuracy import APART, AUTHORS, SEEDS, paper_cases, random_cases
from benchmarks.pages import CLAIMS_HEAD, DASH, Experiment, listed, mean_sd, settled
from benchmarks.peers.accuracy import OURS, Plan
from benchmarks.peers.paired import SEARCH, experiment, paired, scores, verdict
from benchmarks.results import Record, Results
from fastgcn.report.page import Content, Table

# The files of results behind the experiments whose claims count.
FILES = ("accuracy.jsonl", "loader.jsonl", "speed.jsonl", "speed-cuda.jsonl", "tables.jsonl")
_NAMES = {
    "cora": "Cora", "citeseer": "Citeseer", "pubmed": "Pubmed", "cora_ml": "Cora-ML", "acm": "ACM",
    "amazon_photo": "Amazon Photo", "coauthor_cs": "Coauthor CS", "blogcatalog": "BlogCatalog",
    "wordnet": "WordNet",
}  # fmt: skip

# Rows on the paper's settings, by the label and the split of a case.
_PAPER = {
    ("FastGCN, importance", "full"): "the paper's split, rate chosen on validation",
    (APART, "full"): "the same, test nodes out of sight until the end",
    (AUTHORS, "authors"): "the authors' program's choices and split",
    ("FastGCN, importance", "random"): "ten random splits, 60/20/20",
    ("FastGCN-transductive", "public"): "20 labels a class, whole graph in training",
}


def experiments() -> list[Experiment]:
    return [
        Experiment(name=name, title=title, plan=lambda _: (), show=show, gathered=True)
        for name, title, show in (
            ("headline", "How good it is", _headline),
            ("paper", "The paper's settings", _paper),
            ("missed", "What is missed", _missed),
        )
    ]


def _headline(results: Results) -> list[Content | None]:
    plan, rows, verdicts = Plan(), [], Counter[str]()
    for data, name in _NAMES.items():
        cells = [c for c in plan.cells(data, range(plan.seeds)) if c.split == "random"]
        found = scores(results, cells)
        if found[OURS]:
            gap, error = paired(found[OURS], found[SEARCH])
            ours, theirs = (f"{100 * np.mean([*found[w].values()]):.1f}" for w in (OURS, SEARCH))
            tie = ", a tie" if verdict(gap, error) == "tie" else ""
            rows.append((name, ours, theirs, f"{100 * gap:+.2f} ± {100 * error:.2f}{tie}"))
            verdicts[verdict(gap, error)] += 1
    head = ("", "`fastgcn train`", "PyG, searched", "difference")
    counts = listed([f"{said} {verdicts[each]}" for each, said in _VERDICTS.items()])
    return [
        f"**Of {len(rows)} graphs, `fastgcn train` is {counts}.**" if rows else None,
        Table(head, rows, _HEADLINE) if rows else None,
    ]


_HEADLINE = (
    "Test micro-F1 in points, random splits 60/20/20; paired differences ± standard error, a tie "
    "if within it"
)
_VERDICTS = {"better": "better on", "tie": "tied on", "worse": "worse on"}


def _paper(results: Results) -> list[Content | None]:
    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for case in (*paper_cases(SEEDS), *random_cases(SEEDS)):
        if own := case.test_scores(results):
            published = DASH if case.published is None else f"{case.published:.3f}"
            found.setdefault((case.label, case.split), {})[case.data] = mean_sd(own), published
    rows = [
        (said, *(cell for data in ("cora", "pubmed") for cell in row.get(data, (DASH, DASH))))
        for which, said in _PAPER.items()
        if (row := found.get(which))
    ]
    head = ("", "Cora", "the paper", "Pubmed", "the paper")
    caption = (
        "The paper's settings: Algorithm 2 with importance sampling, two layers of 16. The default "
        f"is neither. Test micro-F1, mean ± sd over {SEEDS} seeds"
    )
    return [Table(head, rows, caption) if rows else None]


def _missed(results: Results) -> list[Content | None]:
    measured = [
        experiment(Plan()),
        *accuracy.experiments(),
        tables.experiment(tables.Bank()),
        *loader.experiments(),
        *speed.cpu_experiments(speed.FULL),
        *speed.gpu_experiments(speed.FULL),
    ]
    bounds, used = list[tuple[str, ...]](), dict[str, Record]()
    for each in measured:
        content, _ = settled(each, results)
        used |= results.used
        bounds += [
            (each.title, *row)
            for part in content
            if isinstance(part, Table) and tuple(part.head) == CLAIMS_HEAD
            for row in part.rows
            if row[3] in ("yes", "no")
        ]
    results.used = used
    rows = [row[:4] for row in bounds if row[4] == "no"]
    said = f"{len(bounds) - len(rows)} of {len(bounds)} bounds that were set are met"
    if not rows:
        return [f"{said}." if bounds else None]
    return [Table(("missed", "", "measured", "asked"), rows, f"{said}; these are not")]
