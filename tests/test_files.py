"""Memory maps are let go of without losing anything; JSON is read within limits."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastgcn.arrays import AnyArray, check_whole, forget
from fastgcn.errors import FormatError
from fastgcn.features.store import NodeFeatures
from fastgcn.files import parse_json, read_json
from fastgcn.npy import map_npy


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        (b"\xff", "invalid start byte"),
        ("[" * 100_000, "nested more than 32 deep"),
        ("[" * 33 + "]" * 33, "nested more than 32 deep"),
        ('{"a":' * 33 + "1" + "}" * 33, "nested more than 32 deep"),
        ("9" * 5000, "an integer of 5,000 digits"),
        ("[1, -" + "9" * 60 + "]", "an integer of 61 digits"),
        (" " * ((1 << 26) + 1), "more than 64 MiB"),
    ],
)
def test_json_beyond_the_limits_is_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_json(text)


def test_json_within_the_limits_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 32 + str(2**64 - 1) + "]" * 32)
    found = read_json(tmp_path / "a.json")
    for _ in range(32):
        (found,) = found
    assert found == 2**64 - 1
    assert parse_json("7") == 7
    assert parse_json('"text"') == "text"


def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(ValueError, match="not a regular file"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[5:, 1:]], ids=["map", "view"])
def test_a_map_whose_file_was_cut_off_is_noticed_before_it_is_read(
    tmp_path: Path, view: Callable[[AnyArray], AnyArray]
) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((1000, 7)))
    rows = view(map_npy(path, strict=True))
    check_whole(rows)
    forget(rows)
    os.truncate(path, path.stat().st_size - 1)
    for check in (check_whole, forget):
        with pytest.raises(FormatError, match=r"rows.npy was cut off while it was read"):
            check(rows)


def test_arrays_that_no_file_can_cut_off(tmp_path: Path) -> None:
    check_whole(np.zeros(3))
    check_whole(np.frombuffer(mmap.mmap(-1, 64), np.uint8))
    path = tmp_path / "rows.npy"
    path.write_bytes(bytes(10_000))
    check_whole(np.memmap(path, np.uint8, "r", offset=5000))


def test_features_that_are_cut_off_while_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "features.npy"
    np.save(path, np.ones((100, 600), np.float32))
    parts = NodeFeatures(map_npy(path)).parts(4 * 600 * 10)
    next(parts)
    os.truncate(path, 4096)
    with pytest.raises(FormatError, match=r"features.npy was cut off"):
        next(parts)


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("a.json")
    with pytest.raises(ValueError, match="not a regular file"):
        read_json(tmp_path / "a.json")
