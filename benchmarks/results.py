"""Results as JSON lines: what was measured, on which machine, and with which code.

A line is one object:

* `key`: what was measured and how, all settings included; results are found by it;
* `value`: the figures;
* `where`: commit, versions and hardware; the variable FASTGCN_COMMIT names the commit where git
  cannot, as on a machine that was sent the files alone;
* `code`: the modules that were measured (`of`) and a hash of their source (`hash`);
* `took`: seconds that the measurement took.

A result is **stale** when the source has changed since of a module in `of`, or of any module that
these import, directly or not. Comments, docstrings and blank lines do not count. Stale results
are measured again, and until then pages mark them as stale. A result without `code`, from before
this was recorded, is stale. When the way of measuring changes, change the key.
"""

import ast
import hashlib
import json
import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.structure import ROOT, SOURCE, read_imports
from fastgcn import __version__
from fastgcn.config import TrainConfig
from fastgcn.errors import DownloadError, FormatError, InputError
from fastgcn.files import finite

STALE = "**Stale**"  # the first word of a note that results are

Record = dict[str, Any]
Key = Mapping[str, Any]

# Modules behind a measurement. A name after a minus is left out, with all below it.
GPU_CODE = ("fastgcn.train.loop", "fastgcn.infer.predict", "-fastgcn.backends.ranks")
CPU_CODE = (*GPU_CODE, "-fastgcn.backends.gpu", "-fastgcn.kernels.gpu")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One result to come: what it is called, its key, and how it is measured."""

    label: str
    key: Key
    how: Callable[[], Record]
    code: tuple[str, ...] = CPU_CODE
    instead: Key | None = None  # the key of another result that does as well
    optional: bool = False  # left out where its data cannot be downloaded
    alone: bool = False  # it is timed, so nothing else may run beside it, or it must be done here

    def record(self) -> Record | None:
        """Measure now: a line of results; None where it is optional and its data is not to be had.

        A measurement that is not alone may be sent to another process for this.
        """
        start = time.perf_counter()
        try:
            value = self.how()
        except DownloadError:
            if self.optional:
                return None
            raise
        return {
            "key": dict(self.key),
            "value": finite(value),
            "where": provenance(),
            "code": {"of": list(self.code), "hash": code_hash(self.code)},
            "took": round(time.perf_counter() - start, 3),
        }


class Results:
    """A file of results that only grows; what it has and is not stale is not measured again.

    Results in the files `also` count as measured too; those files are not written. `used` holds
    the lines that were asked for, so that a page can say where its figures come from.
    """

    def __init__(self, path: Path, *, also: Sequence[Path] = ()) -> None:
        self.path = path
        self.used: dict[str, Record] = {}
        self._lines: dict[str, Record] = {}
        for file in (*also, path):
            self._read(file)

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def count(self) -> int:
        """How many fresh results are on file."""
        return sum(not is_stale(line) for line in self._lines.values())

    def read_again(self) -> None:
        """Take in what other processes have measured."""
        self._read(self.path)

    def _read(self, path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # cut by a kill; the next result takes its place
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                dict(record["value"])
                self._lines[_name(record["key"])] = record
            except (ValueError, KeyError, TypeError, AttributeError):
                raise FormatError(f"{path}, line {number}, is not a result") from None

    def get(self, key: Key) -> Record | None:
        """The value of a key, stale or not; None where there is none."""
        line = self._lines.get(_name(key))
        if line is None:
            return None
        self.used[_name(key)] = line
        return dict(line["value"])

    def is_fresh(self, key: Key) -> bool:
        """Whether the key has a value that is not stale."""
        line = self._lines.get(_name(key))
        return line is not None and not is_stale(line)

    def series(self, keys: Iterable[Sequence[Key]]) -> list[Record]:
        """Values of consecutive seeds until one is missing; of several keys the first counts.

        Fresh and stale values are never mixed: the series ends where that changes.
        """
        found: list[Record] = []
        fresh = None
        for choices in keys:
            key = next((k for k in choices if self.is_fresh(k)), None)
            key = key or next((k for k in choices if _name(k) in self._lines), None)
            if key is None or fresh not in (None, self.is_fresh(key)):
                break
            fresh = self.is_fresh(key)
            found.append(self.get(key) or {})
        return found

    def lacks(self, measurement: Measurement) -> bool:
        """Whether neither the result nor one that does as well is on file and fresh."""
        keys = (measurement.key, measurement.instead)
        return not any(key is not None and self.is_fresh(key) for key in keys)

    def measure(self, measurement: Measurement) -> None:
        """Measure what is not on file, or stale, and keep it."""
        if not self.lacks(measurement):
            return
        self.keep(measurement.record())

    def keep(self, record: Record | None) -> None:
        """Put a line on file, if there is one."""
        if record is not None:
            line = (json.dumps(record) + "\n").encode()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _append(self.path, line)
            self._lines[_name(record["key"])] = json.loads(line)

    def took(self, measurement: Measurement) -> float:
        """Seconds that it took the last time; infinite where it was never measured."""
        names = (_name(key) for key in (measurement.key, measurement.instead) if key is not None)
        found = [line["took"] for name in names if "took" in (line := self._lines.get(name, {}))]
        return float(found[0]) if found else float("inf")

    def notes(self) -> list[str]:
        """Where the results in `used` come from, and how many of them are stale."""
        if not self.used:
            return []
        lines = list(self.used.values())
        machines = Counter(_machine(line.get("where", {})) for line in lines)
        commits = sorted({line.get("where", {}).get("commit") or "unknown" for line in lines})
        more = " and others" if len(commits) > 4 else ""
        notes = [
            f"Measured on {'; '.join(name for name, _ in machines.most_common())}, "
            f"commit {', '.join(commits[:4])}{more}."
        ]
        if stale := sum(map(is_stale, lines)):
            notes.append(
                f"{STALE}: the code behind {stale:,} of {len(lines):,} results above has changed "
                "since they were measured."
            )
        return notes


def is_stale(line: Record) -> bool:
    """Whether the code behind a line of results has changed, or is not known."""
    code = line.get("code")
    return code is None or code["hash"] != code_hash(tuple(code["of"]))


@cache
def code_hash(of: tuple[str, ...]) -> str:
    """A hash of the source of some modules and of all that they import; see the top."""
    left_out = [name[1:] for name in of if name.startswith("-")]
    wanted, found = [name for name in of if not name.startswith("-")], set[str]()
    imports = _imports()
    while wanted:
        name = wanted.pop()
        if name not in found and not any(f"{name}.".startswith(f"{no}.") for no in left_out):
            found.add(name)
            wanted += imports.get(name, ())
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name}\n{_source(name)}".encode())
    return digest.hexdigest()[:16]


@cache
def _imports() -> dict[str, set[str]]:
    return read_imports()


def _source(module: str) -> str:
    """The code of a module; empty where there is no such module any more."""
    base = (SOURCE.parent if module.startswith("fastgcn") else ROOT) / module.replace(".", "/")
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.exists():
            return significant_source(path.read_text(encoding="utf-8"))
    return ""


def significant_source(text: str) -> str:
    r"""The lines of a program without docstrings, blank lines and lines of comment.

    >>> significant_source('"Doc."\n# Why.\n\nx = 1  # one\n')
    'x = 1  # one'
    """
    lines = text.splitlines()
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            doc = node.body[0]
            lines[doc.lineno - 1 : doc.end_lineno] = [""] * ((doc.end_lineno or 0) - doc.lineno + 1)
    return "\n".join(each for each in lines if each.strip() and not each.strip().startswith("#"))


def _append(path: Path, line: bytes) -> None:
    """Add a line after the whole lines of a file, in one write: others may be adding theirs."""
    with path.open("a+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":  # cut by a kill
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line)


def _name(key: Key) -> str:
    return json.dumps(_current(dict(key)), sort_keys=True)


def _current(key: Record) -> Record:
    """A key with its settings as this version writes them: new settings have their defaults."""
    config, several = key.get("config"), key.get("configs")
    try:
        if isinstance(config, dict):
            return key | {"config": _complete(config)}
        if isinstance(several, dict):
            return key | {"configs": {name: _complete(each) for name, each in several.items()}}
    except InputError:
        pass  # settings that this version does not have: no key of this version equals it
    return key


def _complete(settings: Record) -> Record:
    config = TrainConfig.from_dict(settings).complete()
    known = config.to_dict()
    if not config.neighbor_sampling:
        del known["fanouts"]  # of GraphSAGE alone
    return known


@cache
def provenance() -> Record:
    """The commit, the versions and the machine behind a result."""
    import torch

    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "fastgcn": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": _processor(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _machine(where: Record) -> str:
    gpu = f", {where['gpu']}" if where.get("gpu") else ""
    return (
        f"{where.get('processor')}, {where.get('cores')} cores{gpu} "
        f"(fastgcn {where.get('fastgcn')}, torch {where.get('torch')})"
    )


def _commit() -> str | None:
    if given := os.environ.get("FASTGCN_COMMIT"):
        return given
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
