"""Results as JSON lines: what was measured, on which machine, and with which code.

A line is one object:

* `key`: what was measured and how, all settings included; results are found by it;
* `value`: the figures;
* `where`: commit, versions and hardware; a commit is dirty if sources differ from it, and the
  result then belongs to no commit, unless its modules are those of the present one by their hash;
  FASTGCN_COMMIT names the commit where git cannot, as on a machine that was sent the files alone;
* `code`: the modules that were measured (`of`) and a hash of their source (`hash`);
* `took`: seconds that the measurement took.

A result is **stale** when the source has changed since of a module in `of`, or of any module that
these import, directly or not. Comments, docstrings and blank lines do not count. Stale results
are measured again, and until then pages mark them as stale; a section of a page never has fresh
and stale ones of the same party beside each other. A result without `code`, from before this was
recorded, is stale. When the way of measuring changes, change the key.
"""

import ast
import hashlib
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
OWN_FOLDER = ROOT / "results"  # of the results that the project's pages show
_SOURCES = ("src", "benchmarks", "tests")  # what a clean commit has no changes in

Record = dict[str, Any]
Key = Mapping[str, Any]

# Modules behind a measurement. A name after a minus is left out, with all below it.
ON_CPU = ("-fastgcn.backends.ranks", "-fastgcn.backends.gpu", "-fastgcn.kernels.gpu")
# What a training on the graphs measured here imports and never runs; a test traces one.
_NEVER_RUN = (
    "-fastgcn.backends.ranks",
    "-fastgcn.data.imported",
    "-fastgcn.data.tables",
    "-fastgcn.graph.convert",
    "-fastgcn.graph.convert_networkx",
    "-fastgcn.train.run_files",
)
# A training that chooses its settings, as `fit(graph)` does.
GPU_CODE = ("fastgcn.train.loop", *_NEVER_RUN)
CPU_CODE = (*GPU_CODE, *ON_CPU[1:])
# A training with given settings (`cases.train`) runs nothing of what chooses some. `NO_RACE` is for
# one whose key names a preset, `GIVEN_CODE` for one whose key has all settings.
NO_RACE = ("-fastgcn.train.race",)
GIVEN_CODE = (*CPU_CODE, *NO_RACE, "-fastgcn.train.automatic", "-fastgcn.train.presets")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One result to come: what it is called, its key, and how it is measured."""

    label: str
    key: Key
    how: Callable[[], Record]
    code: tuple[str, ...] = GIVEN_CODE
    instead: Key | None = None  # the key of another result that does as well
    optional: bool = False  # left out where its data cannot be downloaded
    alone: bool = False  # it is timed, so nothing else may run beside it, or it must be done here
    cores: int = 1  # that it needs; a machine with fewer does not measure it

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
        self._fresh_alone: set[str | None] = set()
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
                self._put(record)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise FormatError(f"{path}, line {number}, is not a result") from None

    @contextmanager
    def fresh_alone(self, parties: Iterable[str | None]) -> Iterator[None]:
        """Hide stale results of some parties for a while, as if they had never been measured."""
        self._fresh_alone = set(parties)
        try:
            yield
        finally:
            self._fresh_alone = set()

    @property
    def mixed(self) -> set[str | None]:
        """The parties (`who` in the key) of which fresh and stale results were asked for."""
        found: dict[str | None, set[bool]] = {}
        for line in self.used.values():
            found.setdefault(line["key"].get("who"), set()).add(is_stale(line))
        return {who for who, kinds in found.items() if len(kinds) > 1}

    def _line(self, key: Key) -> Record | None:
        line = self._lines.get(_name(key))
        hidden = key.get("who") in self._fresh_alone and line is not None and is_stale(line)
        return None if hidden else line

    def get(self, key: Key) -> Record | None:
        """The value of a key, stale or not; None where there is none."""
        line = self._line(key)
        if line is None:
            return None
        self.used[_name(key)] = line
        return dict(line["value"])

    def is_fresh(self, key: Key) -> bool:
        """Whether the key has a value that is not stale."""
        line = self._line(key)
        return line is not None and not is_stale(line)

    @property
    def stale_used(self) -> int:
        """How many of the results that were asked for are stale."""
        return sum(map(is_stale, self.used.values()))

    def series(self, keys: Iterable[Sequence[Key]]) -> list[Record]:
        """Values of consecutive seeds until one is missing; of several keys the first counts.

        Fresh and stale values are never mixed: the series ends where that changes.
        """
        found: list[Record] = []
        fresh = None
        for choices in keys:
            key = next((k for k in choices if self.is_fresh(k)), None)
            key = key or next((k for k in choices if self._line(k) is not None), None)
            if key is None or fresh not in (None, self.is_fresh(key)):
                break
            fresh = self.is_fresh(key)
            found.append(self.get(key) or {})
        return found

    def of_one_code(self, keys: Iterable[Key]) -> list[Record | None]:
        """The values of keys; None for what earlier code made than the newest of them."""
        lines = [self._lines.get(_name(key)) for key in keys]
        order = list(self._lines.values())
        known = [line for line in lines if line is not None]
        newest = max(known, key=order.index).get("code") if known else None
        same = [line if line is not None and line.get("code") == newest else None for line in lines]
        return [None if line is None else dict(line["value"]) for line in same]

    def lacks(self, measurement: Measurement) -> bool:
        """Whether neither the result nor one that does as well is on file and fresh.

        What this machine has too few cores for is not lacking.
        """
        if measurement.cores > cores():
            return False
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
            self._put(json.loads(line))

    def _put(self, record: Record) -> None:
        """Take in a line; the latest are last."""
        name = _name(record["key"])
        self._lines.pop(name, None)
        self._lines[name] = record

    def took(self, measurement: Measurement) -> float:
        """Seconds that it took the last time; infinite where it was never measured."""
        names = (_name(key) for key in (measurement.key, measurement.instead) if key is not None)
        found = [line["took"] for name in names if "took" in (line := self._lines.get(name, {}))]
        return float(found[0]) if found else float("inf")

    def notes(self, *, machines: bool = True) -> list[str]:
        """Where the results in `used` come from, how many are of no commit, and how many stale.

        If several machines measured, it says what each of them did.
        """
        if not self.used:
            return []
        lines = list(self.used.values())
        by_machine: dict[str, list[Record]] = {}
        for line in lines:
            by_machine.setdefault(_machine(line.get("where", {})), []).append(line)
        notes = []
        for machine, measured in sorted(by_machine.items(), key=lambda item: -len(item[1])):
            if not machines:
                break
            commits = sorted(
                {line.get("where", {}).get("commit") or "unknown" for line in measured}
            )
            what = f": {_subjects(measured)}" if len(by_machine) > 1 else ""
            notes.append(f"Measured on {machine}, commit {', '.join(commits)}{what}.")
        early = [line for line in lines if not is_clean(line.get("where", {}).get("commit"))]
        lost = sum(map(is_stale, early))
        if same := len(early) - lost:
            notes.append(
                f"{same:,} of {len(lines):,} results above were measured before their code was "
                "committed; by its hash, it is the present code."
            )
        if stale := self.stale_used:
            uncommitted = f"; {lost:,} of them are of no clean commit" if lost else ""
            notes.append(
                f"{STALE}: the code behind {stale:,} of {len(lines):,} results above has changed "
                f"since they were measured{uncommitted}."
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


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@cache
def provenance() -> Record:
    """The commit, the versions and the machine behind a result."""
    import torch

    return {
        "fastgcn": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": _processor(),
        "cores": cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _machine(where: Record) -> str:
    gpu = f", {where['gpu']}" if where.get("gpu") else ""
    cores = "1 core" if where.get("cores") == 1 else f"{where.get('cores')} cores"
    return (
        f"{where.get('processor')}, {cores}{gpu} "
        f"(fastgcn {where.get('fastgcn')}, torch {where.get('torch')})"
    )


def _subjects(lines: Iterable[Record]) -> str:
    """What some lines are of, in words: each experiment with its data and parts.

    >>> keys = [{"data": "cora"}, {"data": "pubmed"}, {"experiment": "curve", "data": "cora"}]
    >>> _subjects({"key": key} for key in [*keys, {"experiment": "times", "data": "cora"}])
    'training (cora, pubmed), curve and times (cora)'
    """
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        key = line["key"]
        names = [key.get(name) for name in ("experiment", "figure", "who")]
        of = found.setdefault(" ".join(filter(None, names)) or "training", {})
        of[str(key.get("part") or key.get("data") or "all")] = None
    together: dict[str, list[str]] = {}
    for name, of in found.items():
        together.setdefault(", ".join(of), []).append(name)
    return ", ".join(f"{' and '.join(names)} ({of})" for of, names in together.items())


def is_clean(commit: str | None) -> bool:
    """Whether this names a commit, and nothing on top of it.

    >>> is_clean("49c4a745592e"), is_clean("49c4a745592e-dirty"), is_clean(None)
    (True, False, False)
    """
    return commit is not None and re.fullmatch("[0-9a-f]{7,40}", commit) is not None


def check_commit(folder: Path) -> None:
    """Refuse to put results of anything but a clean commit where the project's pages look."""
    commit = provenance()["commit"]
    if folder.resolve() == OWN_FOLDER and not is_clean(commit):
        raise InputError(
            f"{OWN_FOLDER.name} takes results of clean commits alone, and this is {commit}: commit "
            "your changes, name the commit in FASTGCN_COMMIT where there is no git, or keep the "
            "results elsewhere with --results FOLDER"
        )


def _commit() -> str | None:
    if given := os.environ.get("FASTGCN_COMMIT"):
        return given
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", *_SOURCES)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
