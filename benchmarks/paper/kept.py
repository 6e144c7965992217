"""What is measured, and what is on file."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import Record, Results

Key = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of the results to come: what it says, and how it is found."""

    label: str
    key: Key
    how: Callable[[], Record]
    instead: Key | None = None  # a result that does as well


class Kept:
    """The results in a folder, and where those that were asked for come from."""

    def __init__(self, folder: Path) -> None:
        self.results = Results(folder / "reproduce.jsonl", also=[folder / "accuracy.jsonl"])
        self._origins: dict[str, Record] = {}

    def get(self, key: Key) -> Record | None:
        found = self.results.get(key)
        if found is not None:
            self._origins[repr(key)] = self.results.where(key) or {}
        return found

    def lacks(self, measurement: Measurement) -> bool:
        """Whether neither the result nor one that does as well is on file."""
        keys = [measurement.key, measurement.instead]
        return all(key is None or self.results.get(key) is None for key in keys)

    def origins(self) -> list[tuple[Record, int]]:
        """The code and machines behind the results asked for, and how many each gave."""
        counts = Counter(tuple(sorted(where.items())) for where in self._origins.values())
        return [(dict(where), count) for where, count in counts.most_common()]
