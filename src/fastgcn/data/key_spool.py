"""`KeySpool`: a sort of more integers than fit into memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastgcn.kernels import edges as kernels
from fastgcn.types import AnyArray, FloatArray, IntArray

NO_VALUES = np.empty(0, np.float32)

_BUCKET_BITS = 8

# Keys partitioned together; a bucket's share of them is long enough to be copied at speed.
_BATCH = 1 << 20

Piece = tuple[IntArray, FloatArray]  # keys, and a value a key or none at all


@dataclass(frozen=True, slots=True)
class _Run:
    """A batch in bucket order: bucket b is `keys[offsets[b]:offsets[b + 1]]`."""

    keys: IntArray
    values: FloatArray
    offsets: IntArray


class KeySpool:
    """Sorts int64 keys of `bits` bits, stable, each with a float32 value where `valued`.

    Keys are partitioned by their highest bits into buckets as they come. A bucket is sorted
    when its turn comes, or partitioned again by the next bits where it is too large. What
    does not fit into about `memory` bytes waits in files in `folder`, one of keys and one of
    values, which are gone when `drain` has ended.
    """

    def __init__(self, folder: Path, bits: int, memory: int, *, valued: bool) -> None:
        self._folder, self._memory, self._valued = folder, memory, valued
        self._shift = max(bits - _BUCKET_BITS, 0)  # the low bits, which are left to sort
        self._n_buckets = 1 << (bits - self._shift)
        # The number of bits tells spools inside each other apart.
        self._key_file = folder / f"spool-{bits}.keys"
        self._value_file = folder / f"spool-{bits}.values"
        entry = 12 if valued else 8
        self._most_held = memory // (4 * entry)
        self._most_sorted = max(1, memory // (8 * entry))  # a bucket is in memory three times
        capacity = max(1, min(_BATCH, memory // (16 * entry)))
        self._keys = np.empty(capacity, np.int64)
        self._values = np.empty(capacity if valued else 0, np.float32)
        self._filled = 0
        self._runs: list[_Run] = []
        self._held = 0
        self._spills: list[IntArray] = []  # each spill's bucket offsets in the files
        self.size = 0

    def add(self, keys: IntArray, values: FloatArray) -> None:
        """Take keys (and values), which are copied."""
        taken = 0
        while taken < len(keys):
            count = min(len(keys) - taken, len(self._keys) - self._filled)
            place = slice(self._filled, self._filled + count)
            self._keys[place] = keys[taken : taken + count]
            if self._valued:
                self._values[place] = values[taken : taken + count]
            taken += count
            self._filled += count
            if self._filled == len(self._keys):
                self._partition()
        self.size += len(keys)

    def drain(self) -> Iterator[Piece]:
        """All keys in ascending order, in pieces; to be called once, after the last `add`."""
        self._partition()
        sizes = np.zeros(self._n_buckets, np.int64)
        for offsets in (*self._spills, *(run.offsets for run in self._runs)):
            sizes += np.diff(offsets)
        for bucket in np.flatnonzero(sizes).tolist():
            if sizes[bucket] <= self._most_sorted:
                keys, values = zip(*self._pieces(bucket), strict=True)
                yield kernels.sort_keys(np.concatenate(keys), np.concatenate(values), self._shift)
            elif self._shift == 0:  # the same key over and over
                yield from self._pieces(bucket)
            else:
                yield from self._split(bucket)
        self._key_file.unlink(missing_ok=True)
        self._value_file.unlink(missing_ok=True)

    def _split(self, bucket: int) -> Iterator[Piece]:
        deeper = KeySpool(self._folder, self._shift, self._memory // 4, valued=self._valued)
        for piece in self._pieces(bucket):
            deeper.add(*piece)
        yield from deeper.drain()

    def _pieces(self, bucket: int) -> Iterator[Piece]:
        """A bucket's keys in the order they came."""
        for offsets in self._spills:
            for start in range(offsets[bucket], offsets[bucket + 1], self._most_sorted):
                count = min(self._most_sorted, offsets[bucket + 1] - start)
                keys = np.fromfile(self._key_file, np.int64, count, offset=8 * start)
                yield keys, self._read_values(start, count)
        for run in self._runs:
            part = slice(run.offsets[bucket], run.offsets[bucket + 1])
            yield run.keys[part], run.values[part]

    def _read_values(self, start: int, count: int) -> FloatArray:
        if not self._valued:
            return NO_VALUES
        return np.fromfile(self._value_file, np.float32, count, offset=4 * start)

    def _partition(self) -> None:
        """Move what is filled to a run in bucket order."""
        keys, values = self._keys[: self._filled], self._values[: self._filled]
        keys_out, values_out = np.empty_like(keys), np.empty_like(values)
        offsets = kernels.partition(
            keys, values, self._shift, self._n_buckets, keys_out, values_out
        )
        self._runs.append(_Run(keys_out, values_out, offsets))
        self._held += self._filled
        self._filled = 0
        if self._held >= self._most_held:
            self._spill()

    def _spill(self) -> None:
        """Move all runs to the files, bucket by bucket, so that a bucket is read in one piece."""
        sizes = sum(np.diff(run.offsets) for run in self._runs)
        start = self._spills[-1][-1] if self._spills else 0
        self._spills.append(start + np.concatenate(([0], np.cumsum(sizes))))
        self._append(self._key_file, [run.keys for run in self._runs])
        if self._valued:
            self._append(self._value_file, [run.values for run in self._runs])
        self._runs.clear()
        self._held = 0

    def _append(self, path: Path, arrays: list[AnyArray]) -> None:
        with path.open("ab") as file:
            for bucket in range(self._n_buckets):
                for array, run in zip(arrays, self._runs, strict=True):
                    file.write(array[run.offsets[bucket] : run.offsets[bucket + 1]].data)
