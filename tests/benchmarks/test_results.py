"""Results: kept, found by settings, never measured twice, and stale when their code has changed."""

import doctest
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.results import CPU_CODE, Measurement, Results, code_hash, significant_source

from benchmarks import cases, estimators, pages, results, speed, timing
from fastgcn import TrainConfig
from fastgcn.errors import DownloadError, FormatError


def measurement(key: dict[str, Any], value: float = 1.0, **options: Any) -> Measurement:
    return Measurement("", key, lambda: {"v": value}, ("fastgcn.errors",), **options)


def line(key: dict[str, Any], **more: Any) -> str:
    return json.dumps({"key": key, "value": {"v": 1}, "where": {"processor": "p"}} | more) + "\n"


def fresh(key: dict[str, Any], **more: Any) -> str:
    code = {"of": ["fastgcn.errors"], "hash": code_hash(("fastgcn.errors",))}
    return line(key, code=code, **more)


@pytest.mark.parametrize("module", [results, timing, pages, cases, estimators, speed])
def test_examples(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_what_is_on_file_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "results" / "r.jsonl"
    Results(path).measure(measurement({"b": 1, "a": [2]}))
    again = Results(path)
    again.measure(measurement({"a": [2], "b": 1}, value=2.0))
    assert again.get({"a": [2], "b": 1}) == {"v": 1.0}
    assert again.get({"a": [3], "b": 1}) is None
    (text,) = path.read_text().splitlines()
    record = json.loads(text)
    assert record["took"] >= 0
    assert record["code"]["of"] == ["fastgcn.errors"]
    for name in ("fastgcn", "commit", "python", "torch", "processor", "cores", "gpu"):
        assert name in record["where"]


def test_the_commit_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the files were sent, git knows nothing, or another commit."""
    monkeypatch.setenv("FASTGCN_COMMIT", "0123456789ab")
    results.provenance.cache_clear()
    try:
        assert results.provenance()["commit"] == "0123456789ab"
        monkeypatch.delenv("FASTGCN_COMMIT")
        results.provenance.cache_clear()
        assert results.provenance()["commit"] != "0123456789ab"
    finally:
        results.provenance.cache_clear()


def test_stale_results_are_shown_as_stale_and_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    old = {"of": ["fastgcn.errors"], "hash": "0"}
    path.write_text(line({"k": 1}, code=old) + line({"k": 2}) + fresh({"k": 3}))
    kept = Results(path)
    for k in (1, 2, 3):
        assert kept.get({"k": k}) == {"v": 1}
    assert "**Stale**: the code behind 2 of 3 results" in kept.notes()[1]
    assert [kept.lacks(measurement({"k": k})) for k in (1, 2, 3, 4)] == [True, True, False, True]
    kept.measure(measurement({"k": 1}, value=5.0))
    kept.used.clear()
    for now in (kept, Results(path)):
        assert now.get({"k": 1}) == {"v": 5.0}
        assert len(now.notes()) == 1
    assert path.read_text().startswith(line({"k": 1}, code=old))  # the old figure stays readable


def test_a_result_depends_on_all_that_its_code_imports() -> None:
    assert code_hash(("fastgcn.errors",)) != code_hash(("fastgcn.graph.graph",))
    assert code_hash(CPU_CODE) != code_hash((*CPU_CODE, "-fastgcn.sampling"))
    assert code_hash(("fastgcn.no_such_module",)) != code_hash(("fastgcn.errors",))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("x = 1\n", "# Why.\nx = 1\n\n", True),
        ('def f():\n    """Old."""\n    return 1\n', "def f():\n    return 1\n", True),
        ('"""Old."""\nx = 1\n', '"""New,\n\nlonger.\n"""\nx = 1\n', True),
        ("x = 1\n", "x = 2\n", False),
        ("x = 'a'\n", "x = 'b'\n", False),
    ],
)
def test_comments_and_docstrings_do_not_count(before: str, after: str, same: bool) -> None:
    assert (significant_source(before) == significant_source(after)) == same


def test_a_series_never_mixes_fresh_and_stale(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(fresh({"k": 0}) + fresh({"k": 1}) + line({"k": 2}) + line({"j": 0}))
    kept = Results(path)
    assert len(kept.series([{"k": k}] for k in range(9))) == 2
    assert len(kept.series([{"k": k}] for k in (2, 1))) == 1
    assert len(kept.series([{"j": k}] for k in range(9))) == 1
    assert len(kept.series([{"j": k}, {"k": k}] for k in range(9))) == 2  # the fresh one counts


def test_a_line_cut_by_a_kill_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    Results(path).measure(measurement({"k": 1}))
    with path.open("a") as file:
        file.write('{"key": {"k": 2}, "val')
    assert Results(path).get({"k": 1}) == {"v": 1.0}
    Results(path).measure(measurement({"k": 3}))
    assert Results(path).get({"k": 1}) == Results(path).get({"k": 3}) == {"v": 1.0}
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize("text", ["[1, 2]\n", "nonsense\n", '{"key": {}, "value": 3}\n'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.jsonl").write_text(text)
    with pytest.raises(FormatError, match=r"other.jsonl, line 1, is not a result"):
        Results(tmp_path / "r.jsonl", also=[tmp_path / "other.jsonl"])


def test_other_files_count_as_measured_and_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text(fresh({"k": 1}))
    kept = Results(tmp_path / "r.jsonl", also=[tmp_path / "other.jsonl"])
    kept.measure(measurement({"k": 1}, value=2.0))
    assert kept.get({"k": 1}) == {"v": 1}
    assert not (tmp_path / "r.jsonl").exists()


def test_two_writers_do_not_lose_each_others_results(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = Results(path), Results(path)
    for number in range(3):
        first.measure(measurement({"a": number}))
        second.measure(measurement({"b": number}))
    again = Results(path)
    assert all(again.get({name: n}) == {"v": 1.0} for name in "ab" for n in range(3))


@pytest.mark.parametrize("several", [False, True])
def test_settings_that_came_later_are_at_their_defaults(tmp_path: Path, several: bool) -> None:
    """A file written before a setting existed still answers for its default."""
    early: dict[str, Any] = {"hidden": 16, "samples": 100}
    now = TrainConfig(**early).complete().to_dict()
    name, wrap = ("configs", {"a": early}) if several else ("config", early)
    (tmp_path / "r.jsonl").write_text(line({"data": "d", name: wrap}))
    kept = Results(tmp_path / "r.jsonl")
    assert kept.get({"data": "d", name: {"a": now} if several else now}) == {"v": 1}
    other = now | {"hidden": 8}
    assert kept.get({"data": "d", name: {"a": other} if several else other}) is None


def test_settings_that_are_unknown_match_nothing(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(line({"config": {"colour": "red"}}))
    assert Results(tmp_path / "r.jsonl").get({"config": TrainConfig().complete().to_dict()}) is None


def test_a_result_that_does_as_well_is_enough(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(fresh({"k": 1}))
    kept = Results(tmp_path / "r.jsonl")
    assert kept.lacks(measurement({"k": 2}))
    assert not kept.lacks(measurement({"k": 2}, instead={"k": 1}))


def test_data_that_cannot_be_had_is_left_out_where_it_may_be(tmp_path: Path) -> None:
    def offline() -> dict[str, Any]:
        raise DownloadError("could not download it")

    kept = Results(tmp_path / "r.jsonl")
    kept.measure(Measurement("", {"k": 1}, offline, optional=True))
    assert kept.get({"k": 1}) is None
    with pytest.raises(DownloadError):
        kept.measure(Measurement("", {"k": 1}, offline))
