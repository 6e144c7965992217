"""Measured results as JSON lines: each says what was measured, where, and with which code."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fastgcn._version import __version__
from fastgcn.config import TrainConfig
from fastgcn.errors import FormatError, InputError

Record = dict[str, Any]


class Results:
    """A file of results that only grows; what it has is not measured again.

    A line is {"key": what was measured and how, "value": figures, "where": code and machine,
    "took": seconds that measuring took}.
    Results in the files `also` count as measured too; those files are not written.
    """

    def __init__(self, path: Path, *, also: Sequence[Path] = ()) -> None:
        self.path = path
        self._lines: dict[str, Record] = {}
        for other in also:
            self._read(other)
        self._read(path)

    def _read(self, path: Path) -> None:
        """Take in the lines of a file."""
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # cut by a kill; the next result takes its place
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                self._lines[_name(_current(record["key"]))] = {
                    "value": dict(record["value"]), "where": record.get("where", {})
                }  # fmt: skip
            except (ValueError, KeyError, TypeError, AttributeError):
                raise FormatError(f"{path}, line {number}, is not a result") from None

    def get(self, key: Mapping[str, Any]) -> Record | None:
        line = self._lines.get(_name(key))
        return None if line is None else dict(line["value"])

    def where(self, key: Mapping[str, Any]) -> Record | None:
        """The code and the machine that the value of `key` was measured with."""
        line = self._lines.get(_name(key))
        return None if line is None else dict(line["where"])

    def measure(self, key: Mapping[str, Any], how: Callable[[], Record]) -> Record:
        """The value of `key`: the one on file, or else `how()`, which is then on file."""
        found = self.get(key)
        if found is not None:
            return found
        start = time.perf_counter()
        value = how()
        took = round(time.perf_counter() - start, 3)
        record = {"key": dict(key), "value": value, "where": provenance(), "took": took}
        line = (json.dumps(record) + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _append(self.path, line)
        self._lines[_name(key)] = json.loads(line)
        return dict(self._lines[_name(key)]["value"])


def _append(path: Path, line: bytes) -> None:
    """Add a line behind the whole lines of a file, in one write: others may be adding theirs."""
    with path.open("a+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":  # cut by a kill
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line)


def _name(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def _current(key: Record) -> Record:
    """A key with its settings as this version writes them: those it did not know, at defaults."""
    config, several = key.get("config"), key.get("configs")
    try:
        if isinstance(config, dict):
            return key | {"config": _complete(config)}
        if isinstance(several, dict):
            return key | {"configs": {name: _complete(each) for name, each in several.items()}}
    except InputError:
        pass  # settings of another version, which no key of this one has
    return key


def _complete(settings: Record) -> Record:
    return TrainConfig.from_dict(settings).complete().to_dict()


@cache
def provenance() -> Record:
    """The code and the machine behind a figure."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "fastgcn": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "gpu": gpu,
    }


def _commit() -> str | None:
    """The commit of the source tree that this package runs from, if it is one."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
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
