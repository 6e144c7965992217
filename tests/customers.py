"""Generated tables as companies have them: customers of a bank, and payments between them.

About 3 % of the customers are frauds. They pay each other more often, sign up late, and have
other words in their notes, so that both the columns and the edges tell something. The tables have
every nuisance of real ones: string ids, gaps, a column of row numbers, codes that are numbers,
text, dates, one value, values like ids. In those of `raw_tables`, ids are wrong as well.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fastgcn.arrays import AnyArray

_CITIES = [f"City {i:02d}" for i in range(40)]
_WORDS = np.array(
    [
        "card",
        "travel",
        "shop",
        "food",
        "rent",
        "music",
        "games",
        "sport",
        "books",
        "phone",
        "cash",
        "gift",
    ]
)
_ALARM = np.array(["urgent", "crypto", "transfer", "refund", "verify"])


@dataclass(frozen=True, slots=True)
class Customers:
    """Node and edge tables; `fraud` (n,) bool is the truth, also of unlabelled customers."""

    nodes: pa.Table
    edges: pa.Table
    fraud: AnyArray

    def write(self, folder: Path, kind: str = "csv", prefix: str = "") -> tuple[Path, Path]:
        """The two tables as files."""
        paths = folder / f"{prefix}customers.{kind}", folder / f"{prefix}payments.{kind}"
        for path, table in zip(paths, (self.nodes, self.edges), strict=True):
            if kind == "parquet":
                pa.parquet.write_table(table, path)
            else:
                pa.csv.write_csv(table, path)
        return paths


def ids_of(numbers: AnyArray) -> pa.Array:
    """The ids of customers, such as C0000017."""
    return pa.array(np.char.add("C", np.char.zfill(numbers.astype(str), 7)))


def customers(n: int = 200_000, payments: int = 2_000_000, seed: int = 0) -> Customers:
    """`n` customers with 30 columns and their payments."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.03
    columns = {"": pa.array(np.arange(n)), "customer": ids_of(np.arange(n))}
    columns |= _columns(rng, n, fraud)
    label = np.where(fraud, "fraud", "honest").astype(object)
    label[rng.random(n) < 0.4] = None
    columns["status"] = pa.array(label, pa.string())
    return Customers(pa.table(columns), _payments(rng, n, payments, fraud), fraud)


def raw_tables(n: int, payments: int, new: int, seed: int = 0) -> tuple[Customers, Customers]:
    """Tables with wrong ids too, and those of `new` more customers who come later.

    Every hundredth customer has an old id such as 0000127. A tenth of the payments write it as 127,
    and one payment in a thousand is to a customer who is not listed. The payments of new customers
    have no wrong ids, and their table has no status.
    """
    bank = customers(n + new, payments, seed)
    names = np.array(bank.nodes["customer"].to_pylist(), object)
    olds = np.arange(27, n, 100)
    names[olds] = [name[1:] for name in names[olds].tolist()]
    row = np.arange(payments)
    ends = [
        np.array([int(text[1:]) for text in bank.edges[end].to_pylist()])
        for end in ("payer", "payee")
    ]
    later = (ends[0] >= n) | (ends[1] >= n)
    written = [names[found] for found in ends]
    for end, found in enumerate(ends):
        short = (row % 10 == 3) & (found % 100 == 27) & (found < n) & ~later
        written[end][short] = found[short].astype(str)
    unlisted = (row % 1000 == 1) & ~later
    written[1][unlisted] = np.char.add("X", row[unlisted].astype(str))
    edges = bank.edges
    for name, texts in zip(("payer", "payee"), written, strict=True):
        place = edges.column_names.index(name)
        edges = edges.set_column(place, name, pa.array(texts, pa.string()))
    place = bank.nodes.column_names.index("customer")
    nodes = bank.nodes.set_column(place, "customer", pa.array(names, pa.string()))
    old = Customers(nodes.slice(0, n), edges.filter(pa.array(~later)), bank.fraud[:n])
    coming = nodes.slice(n).drop_columns(["status"])
    return old, Customers(coming, edges.filter(pa.array(later)), bank.fraud[n:])


def _gaps(rng: np.random.Generator, values: AnyArray, share: float) -> pa.Array:
    return pa.array(values, mask=rng.random(len(values)) < share)


def _columns(rng: np.random.Generator, n: int, fraud: AnyArray) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    shift = 0.7 * fraud
    for i in range(8):  # some tell something
        found[f"score_{i}"] = pa.array(rng.normal(size=n) + shift * (i % 2))
    found["age"] = _gaps(rng, rng.integers(18, 90, n), 0.05)
    found["income"] = _gaps(rng, np.exp(rng.normal(10, 1.2, n)).round(2), 0.1)
    found["balance"] = pa.array((rng.pareto(1.5, n) * 1000 * (1 + fraud)).round(2))
    found["logins"] = pa.array(rng.poisson(3 + 2 * fraud))
    found["is_premium"] = pa.array(rng.random(n) < 0.2)
    found["has_app"] = _gaps(rng, rng.random(n) < 0.6, 0.02)
    found["newsletter"] = pa.array(np.where(rng.random(n) < 0.3, "yes", "no"))
    found["city"] = _gaps(rng, np.array(_CITIES)[rng.integers(0, 40, n)], 0.03)
    found["segment"] = pa.array(np.array(["retail", "private", "business"])[rng.integers(0, 3, n)])
    found["branch_code"] = pa.array(rng.integers(100, 130, n))
    found["merchant"] = pa.array(np.char.add("shop-", rng.integers(0, 5000, n).astype(str)))
    found["device"] = pa.array(np.array(["ios", "android", "web"])[
        np.where(fraud & (rng.random(n) < 0.5), 2, rng.integers(0, 3, n))])  # fmt: skip
    days = rng.integers(12_000, 19_000, n) + 800 * fraud
    found["signed_up"] = pa.array(days.astype("datetime64[D]"))
    seconds = rng.integers(1_600_000_000, 1_700_000_000, n)
    found["last_seen"] = _gaps(rng, seconds.astype("datetime64[s]"), 0.08)
    words = _WORDS[rng.integers(0, len(_WORDS), (n, 5))]
    alarm = _ALARM[rng.integers(0, len(_ALARM), n)]
    words[:, 4] = np.where(fraud & (rng.random(n) < 0.4), alarm, words[:, 4])
    note = words[:, 0]
    for i in range(1, 5):
        note = np.char.add(np.char.add(note, " "), words[:, i])
    found["note"] = pa.array(np.char.add(note, np.char.add(" ", (np.arange(n) % 997).astype(str))))
    mail = np.char.add(np.char.add("u", rng.permutation(n).astype(str)), "@example.org")
    found["email"] = pa.array(mail)
    found["currency"] = pa.array(np.full(n, "EUR"))
    found["opt_in"] = pa.array(rng.integers(0, 2, n))
    found["limit"] = pa.array(rng.integers(1, 20, n) * 500)
    found["visits"] = pa.array(rng.geometric(0.02, n))
    return found


def _payments(rng: np.random.Generator, n: int, m: int, fraud: AnyArray) -> pa.Table:
    source, target = rng.integers(0, n, m), rng.integers(0, n, m)
    frauds = np.flatnonzero(fraud)
    among = fraud[source] & (rng.random(m) < 0.5)
    if len(frauds):
        target[among] = frauds[rng.integers(0, len(frauds), int(among.sum()))]
    times = rng.integers(1_600_000_000, 1_700_000_000, m)
    return pa.table(
        {
            "payer": ids_of(source),
            "payee": ids_of(target),
            "times": pa.array(rng.integers(1, 20, m)),
            "amount": pa.array(np.exp(rng.normal(4, 1, m)).round(2)),
            "kind": pa.array(np.array(["card", "transfer", "cash"])[rng.integers(0, 3, m)]),
            "at": pa.array(times.astype("datetime64[s]")),
        }
    )
