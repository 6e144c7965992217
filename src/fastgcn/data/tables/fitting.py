"""Choosing and fitting an encoder for each column of a node table, on the training nodes alone.

Every column is read once. Numbers keep sums and a thinned sample; text keeps its first distinct
values and the frequencies of its words; so the memory is bounded for tables of any length.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.data.tables.encoders import (
    FORMATS,
    ISO,
    Spec,
    bucket,
    seconds_of,
    texts_of,
    timestamps_of,
    word_counts,
)
from fastgcn.data.tables.files import decoded, is_list, is_number, is_text, listed, values_of
from fastgcn.errors import InputError

# A column with more distinct values than this is hashed, not one-hot.
MOST_CATEGORIES = 64
HASHED = 64  # features of such a column
WORDS = 128  # features of a column of text, at most
HASHED_WORDS = 32  # of these for all words but the commonest, if there are more words

# Distinct values of a column that are remembered.
_REMEMBERED = 10_000

# Words of a column that are counted; where there are many more, the rare ones are forgotten.
_REMEMBERED_WORDS = 50_000

# Longer ones are hashed.
_LONGEST_WORD = 64

# A number this many deviations from the mean makes a long tail.
_TAIL = 10.0

_QUANTILES = 101
_SAMPLE_NUMBERS = 1 << 23  # in all columns together
_SAMPLE_ROWS = 1 << 16

# Text of at least so many words a value is text, and no category.
_WORDS = 3.0

# Text of which so large a share can be read as dates is dates.
_DATES = 0.95


def temporal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def timelike(kind: pa.DataType) -> bool:
    """A time of the day or a duration, which counts as a number."""
    return bool(pa.types.is_time(kind) or pa.types.is_duration(kind))


def kind_of(name: str, kind: pa.DataType, path: Any) -> str:
    """How a column of this type is fitted: as a number, words, date or vector."""
    if pa.types.is_dictionary(kind):
        return "words"
    if is_number(kind) or timelike(kind) or pa.types.is_null(kind):
        return "number"
    if temporal(kind):
        return "date"
    if is_text(kind):
        return "words"
    if is_list(kind) and is_number(kind.value_type):
        return "vector"
    raise InputError(
        f"column {name!r} of {path} cannot be a feature: it holds {kind}; leave it out (--drop, or "
        "drop= in Python)"
    )


class Numbers:
    """Means, deviations, extremes and a thinned sample of k columns of numbers."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = list(columns)
        k = len(self.columns)
        self.count, self.missing = np.zeros(k), np.zeros(k)
        self.mean, self._squares = np.zeros(k), np.zeros(k)
        self.low, self.high = np.full(k, np.inf), np.full(k, -np.inf)
        self.binary = np.ones(k, np.bool_)
        self._most = max(256, min(_SAMPLE_ROWS, _SAMPLE_NUMBERS // max(k, 1)))
        self._sample: list[FloatArray] = []
        self._held, self._stride, self._next = 0, 1, 0

    def add(self, rows: FloatArray) -> None:
        """Take (r, k) float64, NaN where a number is missing."""
        if not len(rows) or not self.columns:
            return
        there = ~np.isnan(rows)
        count = there.sum(axis=0)
        filled = np.where(there, rows, 0.0)
        mean = filled.sum(axis=0) / np.maximum(count, 1)
        squares = (np.where(there, rows - mean, 0.0) ** 2).sum(axis=0)
        total = np.maximum(self.count + count, 1)
        delta = mean - self.mean
        self._squares += squares + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.count += count
        self.missing += len(rows) - count
        self.low = np.minimum(self.low, np.where(there, rows, np.inf).min(axis=0))
        self.high = np.maximum(self.high, np.where(there, rows, -np.inf).max(axis=0))
        self.binary &= ((filled == 0) | (filled == 1)).all(axis=0)
        self._keep(rows)

    def _keep(self, rows: FloatArray) -> None:
        """Keep every stride-th row; if there are too many, only every second one of these."""
        part = rows[self._next :: self._stride]
        self._next = (self._next - len(rows)) % self._stride
        self._sample.append(part.copy())
        self._held += len(part)
        if self._held > 2 * self._most:
            kept = np.concatenate(self._sample)
            self._sample = [kept[::2].copy()]
            self._next += self._stride * (len(kept) % 2)
            self._stride *= 2
            self._held = len(self._sample[0])

    @property
    def deviation(self) -> FloatArray:
        found: FloatArray = np.sqrt(self._squares / np.maximum(self.count, 1))
        return found

    @property
    def constant(self) -> Any:
        """(k,) True for columns without two values; rounding counts as no difference."""
        return ~(self.high > self.low)

    @property
    def tailed(self) -> Any:
        """(k,) True for columns with a value far from the mean."""
        far = np.maximum(self.high - self.mean, self.mean - self.low)
        return ~self.constant & ~self.binary & (far > _TAIL * self.deviation)

    def specs(self, scale: str, others: bool) -> list[dict[str, Any]]:
        """An encoder for each column; with `others`, the table has other kinds of columns too.

        `auto` takes complete numbers without long tails as they are, if all columns are such.
        """
        plain = not (others or self.missing.any() or self.tailed.any())
        sample = np.concatenate(self._sample) if self._sample else np.empty((0, len(self.columns)))
        found = []
        for i, name in enumerate(self.columns):
            chosen = scale
            if scale == "auto":
                chosen = "none" if plain else "quantile" if self.tailed[i] else "standard"
            if chosen != "none" and self.constant[i]:
                chosen = "constant"
            if chosen in ("standard", "quantile") and self.binary[i]:
                chosen = "none"
            values = sample[:, i][~np.isnan(sample[:, i])]
            if chosen == "quantile" and not len(values):
                chosen = "standard"
            points = []
            if chosen == "quantile":
                points = np.quantile(values, np.linspace(0, 1, _QUANTILES)).tolist()
            found.append(
                {
                    "column": name,
                    "kind": "number",
                    "scale": chosen,
                    "mean": float(self.mean[i]),
                    "deviation": float(self.deviation[i]) or 1.0,
                    "quantiles": points,
                    "missing": bool(self.missing[i]),
                }
            )
        return found


class Words:
    """The values of a text column: its categories, words and gaps; decides what it is.

    `forced` is category, text or date if the user says so; else None.
    """

    def __init__(self, column: str, forced: str | None) -> None:
        self.column, self.forced = column, forced
        self.rows = self.missing = 0
        self._values: Counter[str] = Counter()
        self._remembered_rows = 0  # rows until there were too many values to remember
        self._looks_like: str | None = None  # text, date or category, by the first rows
        self._documents = 0
        self._frequency: Counter[str] = Counter()  # texts that have a word
        self._hashed = np.zeros(HASHED_WORDS)  # as many, of all words together that share a hash
        self._dates = dict.fromkeys(FORMATS, 0)

    def add(self, column: pa.Array) -> None:
        texts = texts_of(column)
        self.rows += len(texts)
        self.missing += texts.null_count
        counts = pc.value_counts(texts.drop_null())
        values, times = counts.field(0), values_of(counts.field(1))
        if not len(values):
            return
        if len(self._values) <= _REMEMBERED:
            self._values.update(dict(zip(values.to_pylist(), times.tolist(), strict=True)))
            self._remembered_rows = self.rows - self.missing
        if self._looks_like is None:
            self._looks_like = self.forced or _first_look(values, times)
        if self._looks_like == "text":
            self._add_words(values, times)
        if self._looks_like == "date":
            for form in FORMATS if self.forced else ISO:
                parsed = timestamps_of(values, form)
                there = np.flatnonzero(values_of(parsed.is_valid()))
                self._dates[form] += int(times[there].sum())

    @property
    def distinct(self) -> int:
        return len(self._values)

    def spec(self) -> tuple[dict[str, Any] | None, str | None]:
        """The encoder, None if the column says nothing; and a sentence if it is not used."""
        base = {"column": self.column, "missing": bool(self.missing)}
        present = self.rows - self.missing
        if present == 0 or (self.distinct < 2 and not self.missing):
            what = "is empty" if present == 0 else f"has the one value {next(iter(self._values))!r}"
            return None, f"column {self.column!r} {what} on all training nodes and is not used"
        share = self.distinct / max(self._remembered_rows, 1)
        kind = self.forced
        if kind is None:
            if max(self._dates.values()) >= _DATES * present:
                kind = "date"
            elif self._looks_like == "text" and share > 0.5:
                kind = "text"
            elif self.distinct > MOST_CATEGORIES and share > 0.9:
                return None, (
                    f"column {self.column!r} has another value for nearly every node, like an id, "
                    "and is not used; to use it, say --categorical or --text"
                )
            else:
                kind = "category"
        if kind == "date":
            return self._date(base, present), None
        if kind == "text":
            return base | {"kind": "vocabulary"} | self._commonest_words(), None
        if self.distinct > MOST_CATEGORIES:
            return base | {"kind": "hashed", "width": HASHED}, None
        return base | {"kind": "category", "values": sorted(self._values)}, None

    def _add_words(self, values: pa.Array, times: IntArray) -> None:
        words: list[str] = []

        def remember(distinct: list[str]) -> Sequence[int]:
            words.extend(distinct)
            return [i if word else -1 for i, word in enumerate(distinct)]

        document, place, _ = word_counts(values, remember)
        self._documents += int(times.sum())
        counts = np.bincount(place, weights=times[document], minlength=len(words))
        self._frequency.update(dict(zip(words, counts.astype(int).tolist(), strict=True)))
        del self._frequency[""]
        hashes = [bucket(word, HASHED_WORDS) for word in words]
        self._hashed += np.bincount(hashes, weights=counts, minlength=HASHED_WORDS)
        if len(self._frequency) > 2 * _REMEMBERED_WORDS:
            self._frequency = Counter(dict(self._frequency.most_common(_REMEMBERED_WORDS)))

    def _commonest_words(self) -> dict[str, Any]:
        """The words with a feature of their own, and the inverse frequencies of all features."""
        ranked = sorted(self._frequency.items(), key=lambda each: (-each[1], each[0]))
        short = [each for each in ranked if len(each[0]) <= _LONGEST_WORD]
        few = len(ranked) <= WORDS and len(short) == len(ranked)
        chosen = short if few else short[: WORDS - HASHED_WORDS]
        counts = [float(count) for _, count in chosen]
        if not few:
            others = self._hashed.copy()
            for word, count in chosen:
                others[bucket(word, HASHED_WORDS)] -= count
            counts += others.tolist()
        frequency = np.minimum(counts, self._documents)  # two words of a text may share a hash
        idf = np.log((1 + self._documents) / (1 + frequency)) + 1
        return {"words": [word for word, _ in chosen], "idf": idf.tolist()}

    def _date(self, base: dict[str, Any], present: int) -> dict[str, Any]:
        """Dates that are written as text, by the format that fits most of them."""
        best = max(self._dates.values())
        forms = [form for form, count in self._dates.items() if count == best]
        if best < 0.5 * present:
            raise InputError(
                f"column {self.column!r} must hold dates such as 2024-12-31, but has "
                f"{listed(self._values, 3)}"
            )
        if len(forms) > 1:
            raise InputError(
                f"column {self.column!r} has dates that can be read in two ways ({listed(forms)}); "
                "write them as 2024-12-31"
            )
        dates = Dates(self.column, forms[0])
        times = np.minimum(list(self._values.values()), 100)  # no more rows than 1 M
        dates.add(pa.array(list(self._values)).take(np.repeat(np.arange(len(times)), times)))
        return dates.spec() | base


def _first_look(values: pa.Array, times: IntArray) -> str:
    """What the first rows of a column look like: `values`, each so many `times`."""
    for form in ISO:
        there = values_of(timestamps_of(values, form).is_valid())
        if times[there].sum() >= _DATES * times.sum():
            return "date"
    blanks = values_of(pc.count_substring_regex(values, r"\s+"))
    words = float(((blanks + 1) * times).sum() / times.sum())
    return "text" if words >= _WORDS else "category"


class Dates:
    """The dates of a column: their mean and deviation, and if they have times of the day."""

    def __init__(self, column: str, form: str | None = None) -> None:
        self._column, self._form = column, form
        self._seconds, self._hours = Numbers([column]), False

    def add(self, column: pa.Array) -> None:
        seconds = seconds_of(timestamps_of(column, self._form))
        self._hours |= bool(np.any(np.mod(seconds[~np.isnan(seconds)], 86400.0) != 0))
        self._seconds.add(seconds[:, None])

    def spec(self) -> dict[str, Any]:
        return {
            "column": self._column,
            "kind": "date",
            "mean": float(self._seconds.mean[0]),
            "deviation": float(self._seconds.deviation[0]) or 1.0,
            "hours": self._hours,
            "format": self._form,
            "missing": bool(self._seconds.missing[0]),
        }

    @property
    def empty(self) -> bool:
        return not self._seconds.count[0]


class Fitting:
    """Takes the training nodes' rows of the feature columns in pieces, and makes the encoders."""

    def __init__(
        self, types: Mapping[str, pa.DataType], forced: Mapping[str, str], scale: str, path: Any
    ) -> None:
        self._scale, self.columns = scale, list(types)
        kinds = {
            name: forced.get(name) or kind_of(name, kind, path) for name, kind in types.items()
        }
        self._numbers = Numbers([name for name, kind in kinds.items() if kind == "number"])
        self._vectors: dict[str, int] = {n: -1 for n, kind in kinds.items() if kind == "vector"}
        self._words: dict[str, Words] = {}
        self._dates: dict[str, Dates] = {}
        for name, kind in kinds.items():
            if kind == "date" and temporal(types[name]):
                self._dates[name] = Dates(name)
            elif kind in ("words", "category", "text", "date"):
                self._words[name] = Words(name, None if kind == "words" else kind)

    @property
    def number_columns(self) -> list[str]:
        return self._numbers.columns

    @property
    def only_numbers(self) -> bool:
        return not self._words and not self._dates

    def add(self, batch: Mapping[str, pa.Array], numbers: FloatArray) -> None:
        """Take a piece of all columns but those of numbers, and (rows, k) of these."""
        self._numbers.add(numbers)
        for name, words in self._words.items():
            words.add(decoded(batch[name]))
        for name, dates in self._dates.items():
            dates.add(batch[name])
        for name in self._vectors:
            if len(numbers) and self._vectors[name] < 0:
                self._vectors[name] = len(batch[name][0])

    def finish(self) -> tuple[list[Spec], list[str]]:
        """The encoders in the order of the columns, and sentences about columns not used."""
        found: dict[str, Spec] = {}
        notes: list[str] = []
        for name, words in self._words.items():
            spec, why = words.spec()
            if spec is not None:
                found[name] = spec
            if why is not None:
                notes.append(why)
        for name, dates in self._dates.items():
            if dates.empty:
                notes.append(f"column {name!r} is empty on all training nodes and is not used")
            else:
                found[name] = dates.spec()
        vectors = {"kind": "vector", "missing": False}
        found |= {n: {"column": n, "width": w, **vectors} for n, w in self._vectors.items()}
        others = any(spec["kind"] != "vector" for spec in found.values())
        for spec, count in zip(
            self._numbers.specs(self._scale, others), self._numbers.count, strict=True
        ):
            if count == 0 or (spec["scale"] == "constant" and not spec["missing"]):
                what = "is empty" if count == 0 else "has one value"
                notes.append(
                    f"column {spec['column']!r} {what} on all training nodes and is not used"
                )
            else:
                found[spec["column"]] = spec
        return [found[name] for name in self.columns if name in found], notes


def summary(specs: Iterable[Spec]) -> list[str]:
    """A sentence for each kind of encoder in use."""
    kinds: dict[str, list[str]] = {}
    for spec in specs:
        kind = spec["kind"]
        if kind == "number":
            kind = spec["scale"]
        kinds.setdefault(kind, []).append(spec["column"])
    return [
        f"{_SENTENCES[kind]}: {listed(names, 8)}"
        for kind in _SENTENCES
        if (names := kinds.get(kind))
    ]


_SENTENCES = {
    "none": "numbers taken as they are",
    "standard": "numbers scaled to mean 0 and deviation 1",
    "quantile": "numbers with long tails, as quantiles of a normal distribution",
    "constant": "numbers of one value, of which only the gaps count",
    "category": "categories, a 0/1 feature for each value",
    "hashed": f"categories with many values, hashed to {HASHED} features",
    "date": "dates, as time, month, weekday and hour",
    "vocabulary": "text, as tf-idf of words, the commonest with a feature each",
    "vector": "lists of numbers taken as they are",
}
