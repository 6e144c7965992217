"""Measured results as JSON lines: each says what was measured, where, and with which code."""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fastgcn._version import __version__
from fastgcn.errors import FormatError

Record = dict[str, Any]


class Results:
    """A file of results that only grows; what it has is not measured again.

    A line is {"key": what was measured and how, "value": figures, "where": code and machine}.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[str, Record] = {}
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # cut by a kill; the next result takes its place
        self._length = sum(map(len, lines))
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                self._values[_name(record["key"])] = record["value"]
            except (ValueError, KeyError, TypeError):
                raise FormatError(f"{path}, line {number}, is not a result") from None

    def get(self, key: Mapping[str, Any]) -> Record | None:
        return self._values.get(_name(key))

    def measure(self, key: Mapping[str, Any], how: Callable[[], Record]) -> Record:
        """The value of `key`: the one on file, or else `how()`, which is then on file."""
        found = self.get(key)
        if found is not None:
            return found
        value = how()
        line = json.dumps({"key": dict(key), "value": value, "where": provenance()}) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.truncate(self._length)
            file.write(line.encode())
        self._length += len(line.encode())
        self._values[_name(key)] = value
        return value


def _name(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


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
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
