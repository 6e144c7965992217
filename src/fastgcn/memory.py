"""Numbers of bytes: read from text, shown to people, and available to this process."""

import os
import re
from pathlib import Path

from fastgcn.errors import InputError

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

_UNITS = ("", "k", "m", "g", "t")
_LEAST = 10**6


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
        except (ValueError, OverflowError):  # several points, or too large a number
            size = 0
    if size < _LEAST:
        raise InputError(f"memory must be at least 1MB, such as 500MB or 2GB, got {memory!r}")
    return size


def shown_bytes(n_bytes: float) -> str:
    """A number of bytes as text.

    >>> shown_bytes(5_120_000_000), shown_bytes(48_000_000)
    ('5.1 GB', '48 MB')
    """
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"


def available_memory() -> int:
    """Bytes that could be allocated now without swapping.

    Limits of control groups and of the process (`ulimit`) count too. If the system does not
    report the available memory, all of its memory counts.
    """
    found = _line_bytes(Path("/proc/meminfo"), "MemAvailable")
    if found is None:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    groups = left_in_groups(Path("/sys/fs/cgroup"), _text(Path("/proc/self/cgroup")))
    return min([found, *groups, *_left_to_process()])


# Less than this is not worth asking the system about.
_LITTLE = 1 << 28


def check_room(n_bytes: int, what: str, remedy: str) -> None:
    """Refuse to allocate `n_bytes` for `what` if the machine does not have them.

    >>> check_room(1 << 80, "the result", "ask for fewer nodes")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fastgcn.errors.InputError: the result takes 1,208,925,819,614,629.2 GB of memory, and ...
    """
    if n_bytes > _LITTLE and n_bytes > (free := available_memory()):
        raise InputError(
            f"{what} takes {shown_bytes(n_bytes)} of memory, and {shown_bytes(free)} are free "
            f"here; {remedy}"
        )


def _left_to_process() -> list[int]:
    """Bytes left under the limits of this process on its address space and on its data."""
    left: list[int] = []
    if resource is None:
        return left
    for name, used in (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")):
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY:
            left.append(max(limit - (_line_bytes(Path("/proc/self/status"), used) or 0), 0))
    return left


def resident_memory() -> int:
    """Bytes of this process in memory, with mapped files; 0 if the system does not report it."""
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
    """Bytes left under the limits of control groups (version 2 of Linux's interface).

    `groups` are the lines of /proc/self/cgroup, which give the path of the process's own group
    below `root`. The limits of all groups above it count too.
    """
    own = next((line[3:] for line in groups.splitlines() if line.startswith("0::")), "")
    folders = [root]
    for name in own.split("/"):
        if name:
            folders.append(folders[-1] / name)
    left = []
    for folder in folders:
        try:
            limit = int((folder / "memory.max").read_text(encoding="utf-8"))
            used = int((folder / "memory.current").read_text(encoding="utf-8"))
            lines = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):  # there is no such file, or it says "max"
            continue
        # Linux drops pages of files where a process needs memory, so they count as free.
        known = dict(line.split() for line in lines)
        cached = sum(int(known.get(f"{kind}_file", "0")) for kind in ("inactive", "active"))
        left.append(max(limit - used + cached, 0))
    return left


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
