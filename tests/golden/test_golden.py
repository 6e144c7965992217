"""Short trainings over the whole product give what they gave when they were recorded.

On a machine like the one they were recorded on: every bit. Elsewhere rounding differs, and so
does, rarely, a draw or the class of a node: there losses, and the size and mean of weights and
outputs, are compared to `LOOSE`, and scores to `NODES`.

numba keeps compiled kernels by the file they are in, and does not see a change of a kernel that
they call from another file. After changing kernels, set NUMBA_CACHE_DIR to an empty folder.

After a change on purpose: `python -m tests.golden.record CASE ...` records again.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.golden.cases import CASES, PRESETS, PUBLISHED, has_published
from tests.golden.machine import fingerprint
from tests.golden.play import Graphs, play

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
LOOSE = 1e-3  # relative
NODES = 0.02  # of a score between 0 and 1
ROUNDING = 1e-5  # relative, on the same machine where the order of sums is not always the same


@cache
def same_machine() -> bool:
    return bool(fingerprint() == GOLDEN["machine"])


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    return Graphs(tmp_path_factory.mktemp("graphs"))


def test_the_machine_is_the_one_recorded_on() -> None:
    """Says so where it is another, and bits are not compared."""
    if not same_machine():
        was, now = GOLDEN["machine"], fingerprint()
        other = [key for key in was | now if was.get(key) != now.get(key)]
        pytest.skip(f"another machine ({', '.join(other)}): golden runs are compared loosely")


def test_every_case_is_recorded() -> None:
    assert list(GOLDEN["runs"]) == list(CASES)
    assert len(CASES) >= 24


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_settings_it_had(name: str) -> None:
    assert PRESETS[name]().to_dict() == GOLDEN["presets"][name]


@pytest.mark.parametrize("name", CASES)
def test_a_run_gives_what_it_gave(name: str, graphs: Graphs, tmp_path: Path) -> None:
    case, expected = CASES[name], GOLDEN["runs"][name]
    if case.graph in PUBLISHED and not has_published():
        pytest.skip("set FASTGCN_DATA to a folder with planetoid/ to run tests on real data")
    got = play(name, expected["settings"], graphs, tmp_path)
    if not same_machine():
        assert_near(got, expected, LOOSE, NODES)
        return
    assert got["graph"] == expected["graph"], "the graph itself is another"
    if case.how != "ranks":
        assert got["weights"] == expected["weights"], changes(got, expected)
    if case.exact:
        for part in ("history", "metrics", "tensors", "outputs"):
            assert got[part] == expected[part], part
    else:
        assert_near(got, expected, ROUNDING, ROUNDING)


def changes(got: Any, expected: Any) -> str:
    """Which tensors have other statistics, to see how far apart two runs are."""
    pairs = {key: (values, got["tensors"].get(key)) for key, values in expected["tensors"].items()}
    lines = [f"{key}: {was} is now {now}" for key, (was, now) in pairs.items() if was != now]
    return "\n".join(["other weights", *lines])


def assert_near(got: Any, expected: Any, loose: float, nodes: float) -> None:
    """Numbers of two records are near each other; all that is not a number is equal."""
    for part in ("tensors", "outputs"):
        assert list(got[part]) == list(expected[part])
        for key, was in expected[part].items():
            now = got[part][key]
            assert now["size"] == was["size"], key
            for what in ("rms", "mean"):  # a mean may be near 0 by chance: compare it with the size
                assert abs(now[what] - was[what]) <= loose * was["rms"] + 1e-9, (part, key, what)
    for key, was, now in paired(expected["metrics"], got["metrics"]):
        assert near(key, was, now, loose, nodes), (key, was, now)
    assert len(got["history"]) == len(expected["history"])
    for old, new in zip(expected["history"], got["history"], strict=True):
        for key, was, now in paired(old, new):
            assert near(key, was, now, loose, nodes), (key, was, now)


def paired(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The plain values of two nested records that have the same shape."""
    if isinstance(old, dict):
        assert set(old) == set(new), key
        for name in old:
            yield from paired(old[name], new[name], f"{key}/{name}")
    elif isinstance(old, list):
        assert len(old) == len(new), key
        for number, values in enumerate(zip(old, new, strict=True)):
            yield from paired(*values, f"{key}/{number}")
    else:
        yield key, old, new


def near(key: str, was: Any, now: Any, loose: float, nodes: float) -> bool:
    if isinstance(was, float) and isinstance(now, float):
        if was != was or now != now:
            return was != was and now != now
        return abs(was - now) <= (loose * abs(was) if "loss" in key else nodes)
    return bool(was == now)
