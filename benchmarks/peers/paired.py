"""Scores of the same splits and seeds side by side, their paired differences, and the verdicts."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.pages import DASH, Claim, Experiment, claims_table, standard_error
from benchmarks.peers.accuracy import OURS, Cell, Plan, key
from benchmarks.peers.networks import KINDS
from benchmarks.results import Record, Results
from fastgcn.report.page import Content, Table

SEARCH = "search"  # the kind and setting that validation prefers, of all
Scores = Mapping[str, Mapping[Cell, float]]  # by who, test micro-F1


def scores(results: Results, cells: Sequence[Cell]) -> dict[str, dict[Cell, float]]:
    """Test micro-F1 of everyone on the cells that all have, and of PyG's search over all kinds.

    If some cells have fresh results of everyone, only these count.
    """
    everyone = (OURS, *KINDS)
    found: dict[str, dict[Cell, float]] = {who: {} for who in (*everyone, SEARCH)}
    fresh = [cell for cell in cells if all(results.is_fresh(key(who, cell)) for who in everyone)]
    for cell in fresh or cells:
        records = {who: results.get(key(who, cell)) for who in everyone}
        present = {who: record for who, record in records.items() if record is not None}
        if len(present) < len(records):
            continue
        for who, record in present.items():
            found[who][cell] = record["test_micro_f1"]
        found[SEARCH][cell] = present[preferred({k: present[k] for k in KINDS})]["test_micro_f1"]
    return found


def preferred(records: Mapping[str, Record]) -> str:
    """The kind whose selected setting has the best validation micro-F1; the first among equals."""
    return max(records, key=lambda kind: records[kind]["val_micro_f1"])


def paired(ours: Mapping[Cell, float], theirs: Mapping[Cell, float]) -> tuple[float, float]:
    """The mean of ours less theirs and its standard error.

    Seeds of one split share its nodes, so the error is that of the splits' means; if there is one
    split, of its seeds. It is NaN for a single pair.

    >>> cells = [Cell("d", "random", split, seed) for split in (0, 1) for seed in (0, 1)]
    >>> found = paired(dict(zip(cells, (4, 2, 6, 4))), dict.fromkeys(cells, 1))
    >>> [float(each) for each in found]
    [3.0, 1.0]
    """
    groups: dict[tuple[str, int | None], list[float]] = {}
    for cell, score in ours.items():
        groups.setdefault((cell.split, cell.split_seed), []).append(score - theirs[cell])
    units = [float(np.mean(each)) for each in groups.values()]
    if len(units) == 1:
        (units,) = groups.values()
    return float(np.mean(units)), standard_error(units)


def verdict(difference: float, error: float) -> str:
    """Differences within their error are ties; of a single pair nothing is said.

    >>> verdict(0.2, 0.3), verdict(0.4, 0.3), verdict(-0.4, 0.3), verdict(0.4, float("nan"))
    ('tie', 'better', 'worse', '–')
    """
    if np.isnan(error):
        return DASH
    if abs(difference) <= error:
        return "tie"
    return "better" if difference > 0 else "worse"


def best_kind(found: Scores) -> str:
    """The kind with the best mean test score: more than a user could know."""
    return max(KINDS, key=lambda kind: float(np.mean([*found[kind].values()])))


def accuracy_table(
    plan: Plan, results: Results, chosen: Callable[[str], bool], caption: str
) -> Table | None:
    """A row a data set and kind of split: means of test micro-F1 and differences, in points."""
    rows = []
    for data in plan.data:
        cells = [cell for cell in plan.cells(data, range(plan.seeds)) if chosen(cell.split)]
        for split in dict.fromkeys(cell.split for cell in cells):
            found = scores(results, [cell for cell in cells if cell.split == split])
            if not found[OURS]:
                continue
            means = [f"{100 * np.mean([*found[who].values()]):.2f}" for who in found]
            differences = []
            for rival in (SEARCH, best_kind(found)):
                d, error = paired(found[OURS], found[rival])
                spread = DASH if np.isnan(error) else f"{100 * error:.2f}"
                differences += [f"{100 * d:+.2f} ± {spread}", verdict(d, error)]
            name = data if split == "random" else f"{data}, {split}"
            rows.append((name, *means, *differences, str(len(found[OURS]))))
    head = ("data", "ours", *KINDS, "PyG, searched", "ours less the search", "",
            "ours less the best kind", "", "runs")  # fmt: skip
    return Table(head, rows, caption) if rows else None


def claims(plan: Plan, results: Results) -> Table | None:
    """The bounds: never 0.3 points behind, and 0.5 ahead on random splits of five graphs."""
    random = leads(plan, results, lambda split: split == "random")
    official = leads(plan, results, lambda split: split != "random")
    claims = [
        Claim(what=f"least lead over the best kind{where} ({worst})", value=found[worst],
              at_least=-0.3, unit=" points")
        for where, found in (("", random), (" on official splits", official))
        if found
        for worst in [min(found, key=lambda name: found[name])]
    ]  # fmt: skip
    if random:
        ahead = sum(each >= 0.5 for each in random.values())
        what, of = "data sets with a lead of 0.5 points over the best kind", f" of {len(random)}"
        claims.append(Claim(what=what, value=ahead, at_least=5, unit=of))
    return claims_table(claims, "Test micro-F1 beside what was asked") if claims else None


def leads(plan: Plan, results: Results, chosen: Callable[[str], bool]) -> dict[str, float]:
    """Points by which ours are ahead of the best kind, by data set and kind of split."""
    found = {}
    for data in plan.data:
        cells = [c for c in plan.cells(data, range(plan.seeds)) if chosen(c.split)]
        for split in dict.fromkeys(cell.split for cell in cells):
            each = scores(results, [cell for cell in cells if cell.split == split])
            if each[OURS]:
                name = data if split == "random" else f"{data}, {split}"
                lead = 100 * paired(each[OURS], each[best_kind(each)])[0]
                found[name] = round(lead, 9)  # -0.3 is at least -0.3, whatever binary makes of it
    return found


def experiment(plan: Plan) -> Experiment:
    """The comparison as a section of a page; `benchmarks.peers.accuracy` measures it."""

    def show(results: Results) -> list[Content | None]:
        random = "Random splits 60/20/20: mean test micro-F1 in points, paired differences ± error"
        official = "Official splits: the same; the error is over seeds alone"
        return [
            accuracy_table(plan, results, lambda split: split == "random", random),
            claims(plan, results),
            accuracy_table(plan, results, lambda split: split != "random", official),
        ]

    return Experiment(
        name="peers-accuracy", title="Accuracy beside PyG", plan=lambda _: (), show=show
    )
