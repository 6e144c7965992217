"""Columns of a node table as numbers: `Encoders`, fitted once and applied to any table.

| kind | features |
|---|---|
| number | the value as it is, standardised, or as a quantile of a normal distribution |
| category | a 0/1 feature for each value |
| hashed | 0/1 features, of which a hash of the value picks one |
| date | the time, and month, weekday and hour on circles |
| vocabulary | tf-idf of words: the commonest have a feature each, of others a hash picks it |
| text | tf-idf of words, of which a hash picks the feature; in stores of earlier versions |
| vector | a list of numbers as it is |

A missing number or date counts as the mean, a missing or unknown category as zeros. If training
nodes lack values in a column, a further feature says so. `fastgcn.data.imported` has the state of
each kind as plain data.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtr, ndtri

from fastgcn.arrays import AnyArray, BoolArray, FloatArray, IntArray
from fastgcn.data.tables.files import (
    decoded,
    floats,
    is_list,
    is_number,
    is_text,
    text_parts,
    values_of,
)
from fastgcn.errors import InputError

Spec = Mapping[str, Any]

# Quantiles beyond this are cut off, at 3.1 standard deviations.
_EDGE = 1e-3
_DAY = 86400.0


@dataclass(slots=True)
class Seen:
    """What was met while rows were encoded: by column, values that count as unknown."""

    unseen: Counter[str]
    missing: Counter[str]

    @classmethod
    def nothing(cls) -> "Seen":
        return cls(Counter(), Counter())

    def add(self, other: "Seen") -> None:
        self.unseen.update(other.unseen)
        self.missing.update(other.missing)


class Encoders:
    """Turns batches of the node table into features; made from plain data.

    `columns` are the columns that are read, `names` those of the features.
    """

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = [dict(spec) for spec in specs]
        self.columns = [spec["column"] for spec in self.specs]
        self.names: list[str] = []
        starts = []
        for spec in self.specs:
            starts.append(len(self.names))
            self.names += feature_names(spec)
        self.width = len(self.names)
        numbers = [(start, spec) for start, spec in zip(starts, self.specs, strict=True)]
        self._numbers = _Numbers([each for each in numbers if each[1]["kind"] == "number"])
        self._others = [each for each in numbers if each[1]["kind"] != "number"]
        self.seen = Seen.nothing()

    @property
    def named(self) -> bool:
        """False if all features come from lists, whose entries have no names."""
        return any(spec["kind"] != "vector" for spec in self.specs)

    def encode(
        self,
        batch: Mapping[str, pa.Array],
        rows: int,
        out: FloatArray | None = None,
        seen: Seen | None = None,
    ) -> FloatArray:
        """(rows, width) float32; a column that the batch lacks is missing in every row.

        The result is written to `out` of zeros, and what was met to `seen`, if they are given:
        threads that encode together each have their own.
        """
        out = np.zeros((rows, self.width), np.float32) if out is None else out
        seen = self.seen if seen is None else seen
        self._numbers.encode(batch, out, seen)
        for start, spec in self._others:
            part = out[:, start : start + len(feature_names(spec))]
            column = batch.get(spec["column"])
            if column is None:
                seen.missing[spec["column"]] += rows
                if spec["missing"]:
                    part[:, -1] = 1
                continue
            _ENCODE[spec["kind"]](spec, decoded(column), part, seen)
        return out


def feature_names(spec: Spec) -> list[str]:
    """The names of the features that one column becomes."""
    column, kind = spec["column"], spec["kind"]
    if kind == "number":
        names = [] if spec["scale"] == "constant" else [column]
    elif kind == "category":
        names = [f"{column}={value}" for value in spec["values"]]
    elif kind == "date":
        parts = ["month_sin", "month_cos", "weekday_sin", "weekday_cos"]
        parts += ["hour_sin", "hour_cos"] * spec["hours"]
        names = [f"{column}:{part}" for part in ("time", *parts)]
    elif kind == "vocabulary":
        names = [f"{column}:{word}" for word in spec["words"]]
        names += [f"{column}#{i}" for i in range(len(spec["idf"]) - len(names))]
    else:
        width = len(spec["idf"]) if kind == "text" else spec["width"]
        names = [f"{column}#{i}" for i in range(width)]
    return [*names, f"{column}:missing"] if spec["missing"] else names


def shown_value(spec: Spec, values: FloatArray) -> Any:
    """What a column had in the table, as far as the features (w,) it became still tell.

    >>> spec = {"column": "city", "kind": "category", "missing": False, "values": ["Bonn", "Paris"]}
    >>> shown_value(spec, np.array([0.0, 1.0]))
    'Paris'
    """
    kind = spec["kind"]
    if spec["missing"]:
        if values[-1] != 0:
            return "missing"
        values = values[:-1]
    if kind == "number":
        return _raw_number(spec, float(values[0])) if len(values) else "constant"
    if kind in ("category", "hashed"):
        place = int(np.argmax(values)) if values.any() else None
        if place is None:
            return "another value"
        return spec["values"][place] if kind == "category" else f"#{place}"
    if kind == "date":
        seconds = spec["mean"] + spec["deviation"] * float(values[0])
        return str(np.datetime64(round(seconds / _DAY), "D"))
    if kind == "vocabulary":
        return _shown_words(spec["words"], values)
    return f"{np.count_nonzero(values)} of {len(values)} numbers are not zero"


def _shown_words(words: Sequence[str], values: FloatArray) -> str:
    """The words of a text that have a feature of their own, the most telling first."""
    order = np.argsort(-values, kind="stable")[: np.count_nonzero(values)].tolist()
    own = [words[place] for place in order if place < len(words)]
    others = len(order) - len(own)
    return ", ".join(own) + (" and others" if own and others else "others" * bool(others))


def _raw_number(spec: Spec, value: float) -> float:
    """The number that was encoded, up to rounding."""
    if spec["scale"] == "quantile":
        points = spec["quantiles"]
        value = float(np.interp(ndtr(value), np.linspace(0, 1, len(points)), points))
    elif spec["scale"] == "standard":
        value = spec["mean"] + spec["deviation"] * value
    return float(f"{value:.6g}")


def number_matrix(batch: Mapping[str, pa.Array], columns: Sequence[str], rows: int) -> FloatArray:
    """(rows, k) float64, NaN where a number is missing."""
    out = np.empty((rows, len(columns)), np.float64)
    for i, name in enumerate(columns):
        out[:, i] = numbers_of(batch[name]) if name in batch else np.nan
    return out


def numbers_of(column: pa.Array) -> FloatArray:
    """(rows,) float64 of numbers, times or text; NaN where there is no number."""
    column = decoded(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if is_text(column.type):
        values = column.dictionary_encode()
        known = [*map(_number, values.dictionary.to_pylist()), np.nan]
        found: FloatArray = np.array(known)[_codes(values)]
        return found
    if pa.types.is_time(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if not is_number(column.type):
        raise InputError(f"numbers were expected, got {column.type}")
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        return floats(column).astype(np.float64)
    column = column.cast(pa.float64(), safe=False)
    exact: FloatArray = values_of(column)
    return exact


def _number(text: str | None) -> float:
    try:
        return float((text or "nan").strip().replace("_", "?"))
    except ValueError:
        return float("nan")


def _codes(encoded: pa.DictionaryArray) -> IntArray:
    """(rows,) positions in the dictionary, -1 for null."""
    codes: IntArray = values_of(encoded.indices, -1)
    return codes


class _Numbers:
    """All columns of numbers together: many columns are encoded at once."""

    def __init__(self, placed: Sequence[tuple[int, Spec]]) -> None:
        self._columns = [spec["column"] for _, spec in placed]
        kept = [i for i, (_, spec) in enumerate(placed) if spec["scale"] != "constant"]
        self._kept, self._at = np.array(kept, int), np.array([placed[i][0] for i in kept], int)
        gaps = [i for i, (_, spec) in enumerate(placed) if spec["missing"]]
        self._gaps = np.array(gaps, int)
        self._gaps_at = np.array([placed[i][0] + (placed[i][1]["scale"] != "constant")
                                  for i in gaps], int)  # fmt: skip
        specs = [spec for _, spec in placed]
        self._mean = np.array([spec["mean"] for spec in specs])
        scaled = [spec["scale"] == "standard" for spec in specs]
        self._shift = np.where(scaled, self._mean, 0.0)
        self._divisor = np.where(scaled, [spec["deviation"] for spec in specs], 1.0)
        self._quantiles = {
            i: np.array(spec["quantiles"], np.float64)
            for i, spec in enumerate(specs)
            if spec["scale"] == "quantile"
        }

    def encode(self, batch: Mapping[str, pa.Array], out: FloatArray, seen: Seen) -> None:
        if not self._columns:
            return
        raw = number_matrix(batch, self._columns, len(out))
        missing = np.isnan(raw)
        if missing.any():
            for i in np.flatnonzero(missing.any(axis=0)).tolist():
                seen.missing[self._columns[i]] += int(np.count_nonzero(missing[:, i]))
            raw = np.where(missing, self._mean, raw)
        values = (raw - self._shift) / self._divisor
        for i, points in self._quantiles.items():
            values[:, i] = np.where(missing[:, i], 0.0, _quantile(raw[:, i], points))
        out[:, self._at] = values[:, self._kept]
        out[:, self._gaps_at] = missing[:, self._gaps]


def _quantile(values: FloatArray, points: FloatArray) -> FloatArray:
    """Quantiles of a normal distribution; the middle one of those that equal values have."""
    shares = np.linspace(0, 1, len(points))
    upper = np.interp(values, points, shares)
    lower = 1 - np.interp(-values, -points[::-1], shares)
    found: FloatArray = ndtri(np.clip((upper + lower) / 2, _EDGE, 1 - _EDGE))
    return found


# The empty text and null. Arrow loads pandas to make a scalar of a Python value.
_EMPTY = pa.Array.from_buffers(
    pa.large_string(), 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")]
)[0]
_NO_TEXT = pa.nulls(1, pa.large_string())[0]


def texts_of(column: pa.Array) -> pa.Array:
    """Values of any type as text, whole floats without their point; null if empty."""
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if is_text(kind):
        column = column.cast(pa.large_string())
        return pc.if_else(pc.equal(column, _EMPTY), _NO_TEXT, column)
    if is_list(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise InputError(f"text or numbers were expected, got {kind}")
    column = column.cast(pa.large_string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        column = pc.replace_substring_regex(column, r"\.0*$", "")
        column = pc.if_else(pc.equal(column, "nan"), None, column)
    return column


def _category(spec: Spec, column: pa.Array, out: FloatArray, seen: Seen) -> None:
    place = {value: i for i, value in enumerate(spec["values"])}
    _one_hot(spec, column, out, seen, lambda value: place.get(value, -1))


def _hashed(spec: Spec, column: pa.Array, out: FloatArray, seen: Seen) -> None:
    _one_hot(spec, column, out, seen, lambda value: bucket(value, spec["width"]))


@lru_cache(maxsize=1 << 16)
def bucket(value: str, width: int) -> int:
    """A number below `width` that depends on the text alone.

    >>> bucket("Paris", 128)
    102
    """
    return zlib.crc32(value.encode()) % width


def _one_hot(
    spec: Spec, column: pa.Array, out: FloatArray, seen: Seen, find: Callable[[str], int]
) -> None:
    values = texts_of(column).dictionary_encode()
    places = np.array([*map(find, values.dictionary.to_pylist()), -2], int)[_codes(values)]
    rows = np.flatnonzero(places >= 0)
    out[rows, places[rows]] = 1
    _count_gaps(spec, places == -2, out, seen)
    unseen = int(np.count_nonzero(places == -1))
    if unseen:
        seen.unseen[spec["column"]] += unseen


def _count_gaps(spec: Spec, missing: BoolArray, out: FloatArray, seen: Seen) -> None:
    if missing.any():
        seen.missing[spec["column"]] += int(np.count_nonzero(missing))
        if spec["missing"]:
            out[missing, -1] = 1


# Every byte of ASCII as a small letter, a digit, or a blank for all others.
_PLAIN = np.array(
    [ord(chr(b).lower()) if chr(b).isalnum() else ord(" ") for b in range(128)], np.uint8
)


def _split(documents: pa.Array) -> pa.Array:
    """The words of each text in small letters; some may be empty.

    Splitting by a pattern took a quarter of an import; ASCII goes without.
    """
    text, offsets = text_parts(documents.cast(pa.large_string()))
    if len(text) and int(text.max()) >= 128:
        return pc.split_pattern_regex(pc.utf8_lower(documents), r"[^\p{L}\p{N}]+")
    plain = pa.LargeStringArray.from_buffers(
        len(documents), pa.py_buffer(offsets), pa.py_buffer(_PLAIN[text])
    )
    return pc.split_pattern(plain, " ")


def word_counts(
    documents: pa.Array, places: Callable[[list[str]], Sequence[int]]
) -> tuple[IntArray, IntArray, IntArray]:
    """The words of (k,) texts by their places: text and place, once for each pair, how often.

    `places` finds them for a list of distinct words; those at -1 are left out.
    """
    lists = _split(documents)
    parents: IntArray = values_of(pc.list_parent_indices(lists))
    encoded = lists.flatten().dictionary_encode()
    found = np.array([*places(encoded.dictionary.to_pylist())], np.int64)
    at = found[values_of(encoded.indices)]
    there, width = at >= 0, int(found.max(initial=0)) + 1
    keys, counts = np.unique(parents[there] * width + at[there], return_counts=True)
    return keys // width, keys % width, counts


def places_of_words(known: Sequence[str], width: int) -> Callable[[list[str]], Sequence[int]]:
    """`places` of `word_counts`: a place for each known word, and hashes for all others.

    If the known words take the whole `width`, others have none.

    >>> places_of_words(["rent", "food"], 4)(["food", "rent", "gift", ""])
    [1, 0, 3, -1]
    """
    own = {word: place for place, word in enumerate(known)}
    rest = width - len(own)

    def find(word: str) -> int:
        if not word or (rest == 0 and word not in own):
            return -1
        place = own.get(word)
        return len(own) + bucket(word, rest) if place is None else place

    return lambda words: [*map(find, words)]


def _text(spec: Spec, column: pa.Array, out: FloatArray, seen: Seen) -> None:
    texts = texts_of(column)
    idf = np.array(spec["idf"], np.float64)
    # The words of a store of earlier versions are all hashed.
    places = places_of_words(spec.get("words", ()), len(idf))
    text, place, count = word_counts(texts.fill_null("") if texts.null_count else texts, places)
    values = count * idf[place]
    lengths = np.sqrt(np.bincount(text, values**2, minlength=len(texts)))
    out[text, place] = values / np.maximum(lengths, 1e-12)[text]
    _count_gaps(spec, values_of(texts.is_null()), out, seen)


def timestamps_of(column: pa.Array, form: str | None) -> pa.Array:
    """Dates and times as timestamps; text is parsed by `form`, and null if it does not fit."""
    if is_text(column.type):
        return pc.strptime(column.cast(pa.string()), form or ISO[0], "s", error_is_null=True)
    if pa.types.is_null(column.type):
        return column.cast(pa.timestamp("s"))
    if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
        raise InputError(f"dates were expected, got {column.type}")
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
        return column.cast(pa.timestamp(column.type.unit))
    return column.cast(pa.timestamp("s"), safe=False) if pa.types.is_date(column.type) else column


ISO = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S")
FORMATS = (*ISO, "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")


def seconds_of(times: pa.Array) -> FloatArray:
    """(rows,) float64 seconds since 1970, NaN for null."""
    micros = times.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(pa.float64())
    seconds: FloatArray = values_of(micros) / 1e6
    return seconds


def _date(spec: Spec, column: pa.Array, out: FloatArray, seen: Seen) -> None:
    times = timestamps_of(column, spec["format"])
    seconds = seconds_of(times)
    missing = np.isnan(seconds)
    out[:, 0] = np.where(missing, 0.0, (seconds - spec["mean"]) / spec["deviation"])
    weekday = np.mod(np.floor(seconds / _DAY) + 3, 7)  # the first of January 1970 was a Thursday
    months: AnyArray = values_of(pc.month(times).cast(pa.float64()))
    circles = [(months - 1) / 12, weekday / 7]
    if spec["hours"]:
        circles.append(np.mod(seconds, _DAY) / _DAY)
    for i, turn in enumerate(circles):
        out[:, 1 + 2 * i] = np.where(missing, 0.0, np.sin(2 * np.pi * turn))
        out[:, 2 + 2 * i] = np.where(missing, 0.0, np.cos(2 * np.pi * turn))
    _count_gaps(spec, missing, out, seen)


def vectors_of(column: pa.Array) -> FloatArray:
    """(rows, width) float32 of lists that all have the length of the first."""
    return floats(column.flatten()).reshape(len(column), -1)


def _vector(spec: Spec, column: pa.Array, out: FloatArray, seen: Seen) -> None:
    del seen
    out[:, : spec["width"]] = vectors_of(column)


_ENCODE: dict[str, Callable[[Spec, pa.Array, FloatArray, Seen], None]] = {
    "category": _category,
    "hashed": _hashed,
    "date": _date,
    "vocabulary": _text,
    "text": _text,
    "vector": _vector,
}
