"""Memory maps are let go of without losing anything."""

from pathlib import Path

import numpy as np
import pytest

from fastgcn.arrays import forget


def resident(path: Path) -> int:
    """Bytes of a mapped file that count as this process's memory."""
    found = 0
    mine = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and not line.split()[0].endswith(":"):
            mine = line.endswith(str(path))
        elif mine and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's smaps")
def test_what_was_read_of_a_map_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(1 << 18))
    mapped = np.load(path, mmap_mode="r")
    assert int(mapped.sum()) == (1 << 17) * ((1 << 18) - 1)
    assert resident(path) >= 1 << 20
    forget(mapped[5:])  # a view stands for its map
    assert resident(path) == 0
    assert mapped[-1] == (1 << 18) - 1, "it can be read again"


def test_what_was_written_to_a_map_stays(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros(10))
    private = np.load(tmp_path / "rows.npy", mmap_mode="c")
    private[3] = 7
    forget(private)
    assert private[3] == 7
