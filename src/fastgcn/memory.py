"""Bytes: what people write for them, how many there are, and how many this process has."""

import os
import re
from pathlib import Path

from fastgcn.errors import InputError

_UNITS = ("", "k", "m", "g", "t")
_LEAST = 10**6

# A limit above this is none: systems write "no limit" as about 2^63.
_NO_LIMIT = 1 << 60


def memory_bytes(memory: int | str) -> int:
    """A number of bytes from a number or from text such as "500MB", "2 GB" or "2GiB".

    >>> memory_bytes("1.5GB"), memory_bytes("1.5GiB")
    (1500000000, 1610612736)
    """
    match = re.fullmatch(r"([\d.]+)\s*(?:([kmgt])(i?))?b?", str(memory).strip().lower())
    size = 0
    if match is not None:
        number, unit, binary = match.groups(default="")
        try:
            size = int(float(number) * (1024 if binary else 1000) ** _UNITS.index(unit))
        except (ValueError, OverflowError):  # several points, or more than any number is
            size = 0
    if size < _LEAST:
        raise InputError(f"memory must be at least 1MB, such as 500MB or 2GB, got {memory!r}")
    return size


def shown_bytes(n_bytes: float) -> str:
    """For people.

    >>> shown_bytes(5_120_000_000), shown_bytes(48_000_000)
    ('5.1 GB', '48 MB')
    """
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"


def available_memory() -> int:
    """Bytes that could be allocated now without swapping; all of it where that is not told.

    Where a control group limits the process, what is left of its limit.
    """
    found = _line_bytes(Path("/proc/meminfo"), "MemAvailable")
    if found is None:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([found, *left_in_groups(Path("/sys/fs/cgroup"), _text(Path("/proc/self/cgroup")))])


def resident_memory() -> int:
    """Bytes of this process that are in memory, mapped files included; 0 where that is not told."""
    return _line_bytes(Path("/proc/self/status"), "VmRSS") or 0


def _line_bytes(path: Path, name: str) -> int | None:
    """The number of a line such as `VmRSS: 1234 kB`."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def left_in_groups(root: Path, groups: str = "") -> list[int]:
    """Bytes left under the limits of control groups, of both versions of Linux's interface.

    `groups` are the lines of /proc/self/cgroup, which say where below `root` the process's own
    groups are; the limits of all groups around these hold too.
    """
    names = (
        (root, "memory.max", "memory.current", "inactive_file"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    left = []
    for own, (base, limit_name, used_name, cache_name) in zip(_own(groups), names, strict=True):
        for folder in (base, *_below(base, own)):
            try:
                limit = int((folder / limit_name).read_text(encoding="utf-8"))
                used = int((folder / used_name).read_text(encoding="utf-8"))
                lines = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError):  # not there, or "max"
                continue
            # Pages of files that nobody has read lately go first, and so are as good as free.
            cached = dict(line.split() for line in lines).get(cache_name, "0")
            if limit < _NO_LIMIT:
                left.append(max(limit - used + int(cached), 0))
    return left


def _own(groups: str) -> tuple[str, str]:
    """The paths of the process's groups for memory, of the new interface and of the old one."""
    new = old = ""
    for line in groups.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            new = path
        elif "memory" in controllers.split(","):
            old = path
    return new, old


def _below(base: Path, path: str) -> list[Path]:
    """The folders on the way to a group."""
    names = [name for name in path.split("/") if name]
    return [base.joinpath(*names[:depth]) for depth in range(1, len(names) + 1)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
