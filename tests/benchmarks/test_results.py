"""Results: kept, found by settings, never measured twice, and stale when their code has changed."""

import doctest
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from benchmarks.paper_scale import quick
from benchmarks.results import (
    CPU_CODE,
    GIVEN_CODE,
    OWN_FOLDER,
    Measurement,
    Results,
    check_commit,
    code_hash,
    is_clean,
    significant_source,
)

import fastgcn
from benchmarks import (
    accuracy,
    cases,
    estimators,
    floors,
    full_batch,
    pages,
    paper,
    paper_negative,
    paper_samples,
    results,
    speed,
    timing,
)
from fastgcn import TrainConfig, fit, load
from fastgcn.errors import DownloadError, FormatError, InputError


def measurement(key: dict[str, Any], value: float = 1.0, **options: Any) -> Measurement:
    return Measurement("", key, lambda: {"v": value}, ("fastgcn.errors",), **options)


def line(key: dict[str, Any], **more: Any) -> str:
    return json.dumps({"key": key, "value": {"v": 1}, "where": {"processor": "p"}} | more) + "\n"


def fresh(key: dict[str, Any], **more: Any) -> str:
    code = {"of": ["fastgcn.errors"], "hash": code_hash(("fastgcn.errors",))}
    return line(key, code=code, **more)


@pytest.mark.parametrize(
    "module",
    [
        results,
        timing,
        pages,
        cases,
        estimators,
        speed,
        floors,
        full_batch,
        paper_negative,
        paper_samples,
    ],
)
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
    assert kept.notes()[-1].startswith("**Stale**: the code behind 2 of 3 results")
    assert [kept.lacks(measurement({"k": k})) for k in (1, 2, 3, 4)] == [True, True, False, True]
    kept.measure(measurement({"k": 1}, value=5.0))
    kept.used.clear()
    for now in (kept, Results(path)):
        assert now.get({"k": 1}) == {"v": 5.0}
        assert not any(note.startswith("**Stale**") for note in now.notes())
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


def test_results_of_a_dirty_commit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for commit, clean in ((None, False), ("49c4a745592e-dirty", False), ("49c4a745592e", True)):
        monkeypatch.setattr("benchmarks.results.provenance", lambda c=commit: {"commit": c})
        check_commit(tmp_path)  # elsewhere, anything may be kept
        if clean:
            check_commit(OWN_FOLDER)
        else:
            with pytest.raises(InputError, match="results of clean commits alone"):
                check_commit(OWN_FOLDER)


@pytest.mark.parametrize("commit", [None, "49c4a745592e-dirty", "49c4a745592e"])
@pytest.mark.parametrize("same", [False, True])
def test_results_belong_to_a_commit_by_its_name_or_by_their_code(
    tmp_path: Path, commit: str | None, same: bool
) -> None:
    """Of a dirty commit, they belong to this one if their code is its own; that is said."""
    write = fresh if same else line
    clean = fresh({"k": 2}, where={"commit": "49c4a745592e"})
    (tmp_path / "r.jsonl").write_text(write({"k": 1}, where={"commit": commit}) + clean)
    kept = Results(tmp_path / "r.jsonl")
    kept.get({"k": 1})
    kept.get({"k": 2})
    notes = " ".join(kept.notes())
    named = commit == "49c4a745592e"
    assert ("measured; 1 of them are of no clean commit." in notes) == (not named and not same)
    assert ("1 of 2 results above were measured before" in notes) == (not named and same)
    assert ("**Stale**" in notes) != same


def test_a_clean_tree_is_one_without_changes_in_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results and pages may change on the way: they are what is measured."""

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for folder in ("src", "results"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text("1")
    git("add", ".")
    git("commit", "-qm", "one")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.delenv("FASTGCN_COMMIT", raising=False)
    assert is_clean(results._commit())
    (tmp_path / "results" / "a").write_text("2")
    assert is_clean(results._commit())
    (tmp_path / "src" / "new").write_text("2")
    assert (results._commit() or "").endswith("-dirty")
    monkeypatch.setenv("FASTGCN_COMMIT", "49c4a745592e")
    assert results._commit() == "49c4a745592e"


def test_notes_say_which_machine_measured_what(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [("A", {"data": "cora"}), ("B", {"experiment": "step-time", "data": "cora"})]
    path.write_text("".join(line(key, where={"processor": who, "cores": 2}) for who, key in rows))
    kept = Results(path)
    for _, key in rows:
        kept.get(key)
    first, second, *_ = kept.notes()
    assert first.startswith("Measured on A")
    assert first.endswith(": training (cora).")
    assert second.endswith(": step-time (cora).")


def called_by(run: Callable[[], object]) -> set[str]:
    """The files of ours whose functions are called."""
    called: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
            called.add(code.co_filename)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    source = str(Path(fastgcn.__file__).parent.parent)
    return {name.removeprefix(f"{source}/") for name in called if name.startswith(source)}


@pytest.mark.parametrize("data", ["digits", "cora", "acm"])
@pytest.mark.parametrize("given", [False, True])
def test_what_a_result_does_not_depend_on_is_not_run(
    data: str, given: bool, request: pytest.FixtureRequest
) -> None:
    """A training calls no function of the modules that the hash of its code leaves out."""
    if data != "digits":
        request.getfixturevalue("real_data")
    kipf, ours = fastgcn.kipf_gcn().replace(epochs=2), fastgcn.paper_cora().replace(epochs=2)

    def run() -> None:
        graph = load(data, **({} if data == "digits" else {"split": "random"}))
        if given:
            for config in (ours, kipf):
                cases.train(graph, config)
            cases.follow(graph, ours)
        else:
            fit(graph, seed=0, device="cpu", epochs=3, method="fastgcn")

    code = GIVEN_CODE if given else CPU_CODE
    left_out = [name[1:].replace(".", "/") for name in code if name.startswith("-")]
    inside = called_by(run)
    assert "fastgcn/train/training.py" in inside
    assert ("fastgcn/train/race.py" in inside) != given
    assert not [f for f in inside for no in left_out if f.startswith((f"{no}/", f"{no}.py"))]


def test_results_of_given_settings_outlive_a_change_of_the_race(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The race, the candidates and what they import alone; not the loop."""
    plain = results._source

    def edited(names: set[str]) -> tuple[bool, bool]:
        """Whether results of given, and of chosen, settings expire if these modules change."""
        before = code_hash(GIVEN_CODE), code_hash(CPU_CODE)
        monkeypatch.setattr(results, "_source", lambda m: plain(m) + ("!" if m in names else ""))
        after = code_hash.__wrapped__(GIVEN_CODE), code_hash.__wrapped__(CPU_CODE)
        monkeypatch.setattr(results, "_source", plain)
        return before[0] != after[0], before[1] != after[1]

    for module in ("race", "automatic", "presets"):
        assert edited({f"fastgcn.train.{module}"}) == (False, True)
    assert edited({"fastgcn.diagnose.auto"}) == (False, True)
    assert edited({"fastgcn.train.loop"}) == edited({"fastgcn.kernels.step"}) == (True, True)


@pytest.mark.parametrize(
    "experiment", [*paper.experiments(quick()), *accuracy.experiments(), *estimators.experiments(
        estimators.QUICK)], ids=lambda each: each.name
)  # fmt: skip
def test_a_key_has_all_settings_if_its_code_has_no_presets(experiment: Any, tmp_path: Path) -> None:
    """Else a change of a preset would leave a result that no longer answers to its name."""
    for each in experiment.plan(Results(tmp_path / "r.jsonl")):
        if each.code[: len(GIVEN_CODE)] == GIVEN_CODE:
            named = each.key.get("configs") or {"": each.key["config"]}
            assert all(TrainConfig.from_dict(config).is_complete for config in named.values())
