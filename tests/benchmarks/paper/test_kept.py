"""Results on file: whose they are, what counts as measured, and settings of earlier versions."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.paper.kept import Kept, Measurement

from fastgcn import TrainConfig
from fastgcn.errors import FormatError


def line(key: dict[str, Any], **where: str) -> str:
    return json.dumps({"key": key, "value": {"v": 1}, "where": where}) + "\n"


def test_results_of_bench_accuracy_count_as_measured_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "accuracy.jsonl").write_text(line({"k": 1}, commit="abc"))
    kept = Kept(tmp_path)
    assert kept.get({"k": 1}) == {"v": 1}
    assert kept.origins() == [({"commit": "abc"}, 1)]
    assert not (tmp_path / "reproduce.jsonl").exists()
    (tmp_path / "accuracy.jsonl").write_text("nonsense\n")
    with pytest.raises(FormatError, match=re.escape("accuracy.jsonl, line 1, is not a result")):
        Kept(tmp_path)


@pytest.mark.parametrize("several", [False, True])
def test_settings_that_came_later_are_at_their_defaults(tmp_path: Path, several: bool) -> None:
    """A file written before a setting existed still answers for its default."""
    early: dict[str, Any] = {"hidden": 16, "samples": 100}
    now = TrainConfig(**early).complete().to_dict()
    name, wrap = ("configs", {"a": early}) if several else ("config", early)
    (tmp_path / "reproduce.jsonl").write_text(line({"data": "d", name: wrap}))
    kept = Kept(tmp_path)
    assert kept.get({"data": "d", name: {"a": now} if several else now}) == {"v": 1}
    other = now | {"hidden": 8}
    assert kept.get({"data": "d", name: {"a": other} if several else other}) is None


def test_settings_that_are_unknown_match_nothing(tmp_path: Path) -> None:
    (tmp_path / "reproduce.jsonl").write_text(line({"config": {"colour": "red"}}))
    assert Kept(tmp_path).get({"config": TrainConfig().complete().to_dict()}) is None


def test_a_result_that_does_as_well_is_enough(tmp_path: Path) -> None:
    (tmp_path / "reproduce.jsonl").write_text(line({"k": 1}))
    kept = Kept(tmp_path)
    assert not kept.lacks(Measurement("", {"k": 1}, dict))
    assert kept.lacks(Measurement("", {"k": 2}, dict))
    assert not kept.lacks(Measurement("", {"k": 2}, dict, instead={"k": 1}))


def test_only_what_was_asked_for_is_counted(tmp_path: Path) -> None:
    keys = [{"k": number} for number in range(4)]
    machines = ["a", "b", "a", "c"]
    lines = [line(key, processor=name) for key, name in zip(keys, machines, strict=True)]
    (tmp_path / "reproduce.jsonl").write_text("".join(lines))
    kept = Kept(tmp_path)
    for key in keys[:3]:
        kept.get(key)
        kept.get(key)
    assert kept.origins() == [({"processor": "a"}, 2), ({"processor": "b"}, 1)]
