"""Pages: what is between the marks is what was measured, and the rest stays."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.commands import app
from benchmarks.pages import (
    NOT_YET,
    Claim,
    Experiment,
    check_marks,
    chosen,
    claims_table,
    fill_page,
    from_records,
    measure,
    sections,
)
from benchmarks.processes import together
from benchmarks.results import STALE, Measurement, Results, code_hash

from fastgcn.errors import FormatError, InputError
from fastgcn.report.page import Figure, Section, Table
from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]


def experiment(name: str, keys: int = 1) -> Experiment:
    measurements = [
        Measurement(f"{name} {k}", {name: k}, lambda: {"v": 7}, ("fastgcn.errors",))
        for k in range(keys)
    ]

    def show(results: Results) -> list[Table | Figure]:
        found = [results.get(m.key) for m in measurements]
        if None in found:
            return []
        table = Table(("a|b",), [(str(each),) for each in found], "T")
        return [Figure("<svg/>", "F"), table, Figure("<svg>2</svg>", "F"), table]

    return Experiment(name=name, title=name.title(), plan=lambda _: measurements, show=show)


def test_a_page_is_filled_and_its_prose_kept(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", Results(tmp_path / "r.jsonl")
    marks = ["<!-- a: begin -->\nold\n<!-- a: end -->", "<!-- b: begin --><!-- b: end -->"]
    page.write_text(f"# Mine\n\n{marks[0]}\n\nBetween.\n\n{marks[1]}\nAfter.\n")
    both = [experiment("a"), experiment("b")]
    assert measure(both[:1], results) == 1
    files = fill_page(page, both, results)
    assert [file.name for file in files] == ["page-a.svg", "page-a-2.svg", "page.md"]
    text = page.read_text()
    assert text.startswith("# Mine\n\n<!-- a: begin -->\n\n![F](figures/page-a.svg)")
    assert "old" not in text
    assert "Between." in text
    assert text.endswith("<!-- b: end -->\nAfter.\n")
    assert text.count(NOT_YET) == 1
    assert text.count("Measured on ") == 1
    assert fill_page(page, both, results) == files
    assert page.read_text() == text


def test_a_page_that_is_not_there_is_made(tmp_path: Path) -> None:
    (page,) = fill_page(tmp_path / "new" / "p.md", [experiment("a")], Results(tmp_path / "r.jsonl"))
    assert "## A\n" in page.read_text()
    check_marks(page, [experiment("a")])


def test_a_page_without_a_place_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for text in ("# Else\n", "<!-- a: end -->\n<!-- a: begin -->\n", "<!-- a: begin -->\n" * 2):
        page.write_text(text)
        with pytest.raises(FormatError, match="must hold the line <!-- a: begin -->"):
            fill_page(page, [experiment("a")], Results(tmp_path / "r.jsonl"))
        assert page.read_text() == text


def test_a_second_call_goes_on_where_the_first_was_interrupted(tmp_path: Path) -> None:
    calls = []

    def work() -> dict[str, int]:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {}

    plan = [Measurement("", {"k": k}, work, ("fastgcn.errors",)) for k in range(4)]
    some = Experiment(name="a", title="A", plan=lambda _: plan, show=lambda _: [])
    with pytest.raises(KeyboardInterrupt):
        measure([some], Results(tmp_path / "r.jsonl"))
    assert measure([some], Results(tmp_path / "r.jsonl")) == 2


def test_experiments_are_chosen_in_their_order() -> None:
    both = [experiment("step"), experiment("speed")]
    assert chosen(None, both) == chosen(["all"], both) == chosen(["speed", "step"], both) == both
    with pytest.raises(InputError, match="no experiment 'stpe'; did you mean 'step'"):
        chosen(["stpe"], both)


def test_a_section_never_mixes_fresh_and_stale_results(tmp_path: Path) -> None:
    code = {"of": ["fastgcn.errors"], "hash": code_hash(("fastgcn.errors",))}
    lines: list[dict[str, Any]] = [{"key": {"k": k}, "value": {"v": k}} for k in range(3)]
    path = tmp_path / "r.jsonl"

    def shown(*fresh: int) -> Section:
        made = [line | ({"code": code} if k in fresh else {}) for k, line in enumerate(lines)]
        path.write_text("".join(json.dumps(line) + "\n" for line in made))
        (section,) = sections([values], Results(path))
        return section

    def show(results: Results) -> list[str]:
        return [str([(results.get({"k": k}) or {}).get("v") for k in range(3)])]

    values = Experiment(name="a", title="A", plan=lambda _: [], show=show)
    mixed = shown(1)
    assert mixed.content[0] == "[None, 1, None]"
    assert mixed.content[-1] == "2 results of earlier code are left out: they do not mix."
    assert not any(str(part).startswith(STALE) for part in mixed.content)
    assert shown(0, 1, 2).content[0] == shown().content[0] == "[0, 1, 2]"
    assert str(shown().content[-1]).startswith(STALE)

    def show_all_or_nothing(results: Results) -> list[str]:
        values = [(results.get({"k": k}) or {}).get("v") for k in range(3)]
        return [] if None in values else [str(values)]

    values = Experiment(name="a", title="A", plan=lambda _: [], show=show_all_or_nothing)
    together = shown(1)
    assert together.content[0] == "[0, 1, 2]"
    assert "the fresh ones alone would show nothing" in str(together.content[1])
    assert any(str(part).startswith(STALE) for part in together.content)
    assert len(shown(0, 1, 2).content) == len(together.content) - 2
    values = Experiment(name="a", title="A", plan=lambda _: [], show=show)
    lines[0]["key"]["who"] = "PyG"  # another party, whose code is another

    def show_both(results: Results) -> list[str]:
        first = results.get({"k": 0, "who": "PyG"}) or {}
        return [str([first.get("v"), *((results.get({"k": k}) or {}).get("v") for k in (1, 2))])]

    values = Experiment(name="a", title="A", plan=lambda _: [], show=show_both)
    assert shown(0).content[0] == "[0, 1, 2]"
    assert "2 of 3" in str(shown(0).content[-1])
    assert shown(0, 1).content[0] == "[0, 1, None]"


def test_some_records_are_enough_where_that_is_said(tmp_path: Path) -> None:
    plan = {
        str(k): Measurement("", {"k": k}, lambda: {"v": 1}, ("fastgcn.errors",)) for k in (1, 2)
    }
    results = Results(tmp_path / "r.jsonl")
    results.measure(plan["2"])
    for some, shown in ((False, []), (True, ["2"])):
        found = from_records("a", "A", plan, lambda records: [*records], some=some)
        assert found.show(results) == shown


def test_claims_say_whether_they_are_met() -> None:
    claims = [
        Claim(what="a", value=1.2, at_most=1.3),
        Claim(what="b", value=99.9, at_least=100),
        Claim(what="c", value=5.0, unit=" s"),
    ]
    assert claims_table(claims, "all").rows == [
        ("a", "1.2", "at most 1.3", "yes"),
        ("b", "99.9", "at least 100", "no"),
        ("c", "5 s", "–", "–"),
    ]


@pytest.mark.parametrize(
    ("command", "page"),
    [
        (["accuracy", "--docs"], "docs/benchmarks.md"),
        (["speed", "--docs"], "docs/speed.md"),
        (["speed", "--device", "cuda", "--docs"], "docs/gpu.md"),
        (["estimators", "--docs"], "docs/estimators.md"),
        (["import", "--docs"], "docs/benchmarks.md"),
        (["generate", "--docs"], "docs/benchmarks.md"),
        (["tables", "--docs"], "docs/tutorial.md"),
        (["peers", "--docs"], "docs/benchmarks.md"),
        (["loader", "--docs"], "docs/own-networks.md"),
        (["reproduce", "--docs"], "docs/reproduction.md"),
        (["readme", "--docs"], "README.md"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_pages_are_what_is_on_file_and_say_what_is_stale(
    capfd: Capture, tmp_path: Path, command: list[str], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where this fails, code behind results has changed: `make pages` marks them as stale."""
    copy = tmp_path / Path(page).name
    copy.write_text((ROOT / page).read_text())
    monkeypatch.chdir(tmp_path)
    results = ["--show", "--results", ROOT / "results"]
    done = run_cli(capfd, *command, tmp_path, *results, commands=app)
    assert done.code == 0, done.err
    assert copy.read_text() == (ROOT / page).read_text(), "run `make pages`"
    for figure in (tmp_path / "figures").glob("*.svg"):
        assert figure.read_text() == (ROOT / "docs/figures" / figure.name).read_text(), figure.name


@pytest.mark.parametrize("command", ["speed", "estimators"])
def test_a_page_of_something_else_is_refused_before_anything_is_measured(
    capfd: Capture, tmp_path: Path, command: str
) -> None:
    (tmp_path / f"{command}.md").write_text("# Something else\n")
    folders = ["--docs", tmp_path, "--results", tmp_path]
    done = run_cli(capfd, command, *folders, commands=app)
    assert done.code == 1
    assert "must hold the line" in done.err
    assert [path.name for path in tmp_path.iterdir()] == [f"{command}.md"]


def test_quick_benchmarks_leave_measured_pages_alone(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli(capfd, "speed", "--quick", "--show", commands=app)
    assert done.code == 0, done.err
    assert (tmp_path / "results" / "quick" / "speed.md").exists()
    assert not (tmp_path / "docs").exists()


def test_several_processes_share_what_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times come last and here; what depends on an earlier result is asked for and measured too."""
    results, shared = Results(tmp_path / "r.jsonl"), []

    def share(function: Any, items: list[Measurement], jobs: int) -> Any:
        shared.append([m.key["k"] for m in items])
        assert jobs == 3
        return map(function, items)

    def one(k: int, **options: Any) -> Measurement:
        return Measurement(str(k), {"k": k}, lambda: {"v": k}, ("fastgcn.errors",), **options)

    def plan(kept: Results) -> list[Measurement]:
        first = [one(0, alone=True), one(1), one(1), one(2)]
        return first + ([] if kept.get({"k": 0}) is None else [one(3)])

    monkeypatch.setattr("benchmarks.pages.together", share)
    some = Experiment(name="a", title="A", plan=plan, show=lambda _: [])
    assert measure([some], results, jobs=3) == 4
    assert shared == [[1, 2], [3]]
    lines = [json.loads(line) for line in results.path.read_text().splitlines()]
    assert [line["value"]["v"] for line in lines] == [1, 2, 0, 3]
    assert measure([some], Results(results.path), jobs=3) == 0


def test_processes_keep_to_one_core_each() -> None:
    found = [*together(os.sched_getaffinity, [0, 0, 0], 2)]
    assert [len(cores) for cores in found] == [1, 1, 1]


def test_what_took_longest_begins(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"key": {"k": 1}, "value": {}, "took": 3}\n')
    results = Results(path)
    known, other = (Measurement("", {"k": k}, dict, instead={"k": 1}) for k in (2, 3))
    assert results.took(known) == results.took(other) == 3
    assert results.took(Measurement("", {"k": 4}, dict)) == float("inf")


def test_results_are_kept_where_nothing_draws(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'vl_convert'", name="vl_convert")

    monkeypatch.setattr("benchmarks.pages.fill_page", draw)
    folders = ["--docs", tmp_path, "--results", tmp_path]
    done = run_cli(capfd, "estimators", "members", *folders, commands=app)
    assert done.code == 0
    assert "vl_convert is not installed here" in done.err
    assert "Traceback" not in done.err
