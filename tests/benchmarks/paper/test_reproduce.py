"""`fastgcn reproduce` from end to end, on graphs of a few hundred nodes."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.commands import app as bench
from benchmarks.paper.kept import Kept
from benchmarks.paper.reproduce import EXPERIMENTS, chosen, measure, present, write
from benchmarks.paper.tables import DASH, beside

from benchmarks.paper import scale
from fastgcn.cli import main
from fastgcn.data.generate import GenerateConfig, generate
from fastgcn.report.page import Content, Figure, Section, Table, markdown
from tests.cli_runner import Outcome, run_cli

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results in which nothing is missing, and the cache they were made with."""
    folder = tmp_path_factory.mktemp("reproduction")
    command = ["fastgcn", "reproduce", "all", "--quick", "--results", str(folder)]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setenv("FASTGCN_CACHE", str(folder / "cache"))
        patch.setattr(scale, "quick", scale.smoke)
        patch.setattr(sys, "argv", [*command, "--out", str(folder / "out")])
        main(bench)
    assert stop.value.code == 0
    return folder


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch, measured: Path) -> None:
    monkeypatch.setenv("FASTGCN_CACHE", str(measured / "cache"))
    monkeypatch.setattr(scale, "quick", scale.smoke)


def reproduce(capfd: Capture, results: Path, out: Path, *args: object) -> Outcome:
    return run_cli(
        capfd, "reproduce", *args, "--quick", "--results", results, "--out", out, commands=bench
    )


def test_the_command_measures_once_and_writes_everything(
    capfd: Capture, measured: Path, tmp_path: Path
) -> None:
    outcome = reproduce(capfd, measured, tmp_path / "new" / "out", "--json")
    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert told["measured"] == 0
    assert [section["id"] for section in told["sections"]] == ["about", *EXPERIMENTS]
    page = Path(told["report"]).read_text()
    for name in EXPERIMENTS:
        assert f'<section id="{name}"' in page
    assert {Path(f) for f in told["files"]} == set((tmp_path / "new" / "out").iterdir())
    for name in ("figure3.svg", "figure2-3.svg", "accuracy-vs-time-6.svg", "variance.svg"):
        ElementTree.parse(tmp_path / "new" / "out" / name)
    for name in ("figure3.md", "table2.md", "table3-2.md", "original-split-2.md", "total-time.md"):
        assert (tmp_path / "new" / "out" / name).read_text().startswith("| ")


def test_nothing_is_a_dash_once_all_is_measured(measured: Path) -> None:
    """But what the paper does not have, and the original GCN on the large graph."""
    allowed = ("GCN (original)", "GraphSAGE-mean", "GraphSAGE-GCN, new program")
    for section in present(chosen([]), scale.smoke(), Kept(measured))[1:]:
        for table in section.content:
            if isinstance(table, Table) and section.id != "figure2":
                for row in table.rows:
                    assert DASH not in row or row[0].endswith(allowed), (section.id, row)


def test_results_say_which_code_machine_and_settings(measured: Path) -> None:
    lines = (measured / "reproduce.jsonl").read_text().splitlines()
    for line in map(json.loads, lines):
        assert {"commit", "processor", "cores", "torch"} <= line["where"].keys()
        assert line["took"] >= 0
    assert len({json.dumps(json.loads(line)["key"]) for line in lines}) == len(lines)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_is_not_measured_is_a_dash(name: str, tmp_path: Path) -> None:
    about, section = present([name], scale.full(), Kept(tmp_path))
    assert not any(isinstance(part, Figure) for part in section.content)
    tables = [part for part in section.content if isinstance(part, Table)]
    assert any(DASH in row for table in tables for row in table.rows)
    write([about, section], scale.full(), tmp_path)


def test_a_second_call_goes_on_where_the_first_was_interrupted(tmp_path: Path) -> None:
    kept, labels = Kept(tmp_path), []

    def interrupt(done: int, total: int, label: str) -> None:
        if done == 2:
            raise KeyboardInterrupt
        labels.append((total, label))

    with pytest.raises(KeyboardInterrupt):
        measure(["datasets"], scale.smoke(), kept, interrupt)
    again = Kept(tmp_path)
    assert measure(["datasets"], scale.smoke(), again, lambda *seen: labels.append(seen[1:])) == 1
    assert labels == [
        (3, "tiny-sim-a: statistics"),
        (3, "tiny-sim-b: statistics"),
        (1, "tiny-sim-c: statistics"),
    ]


def test_progress_says_what_is_measured(capfd: Capture, tmp_path: Path) -> None:
    outcome = reproduce(capfd, tmp_path, tmp_path / "out", "datasets")
    assert "2 of 3: tiny-sim-b: statistics" in outcome.err
    assert "Report: " in outcome.err


def test_reddit_can_be_pointed_at(capfd: Capture, measured: Path, tmp_path: Path) -> None:
    store = measured / "cache" / "tiny-sim-b"
    outcome = reproduce(capfd, tmp_path, tmp_path, "datasets", "--reddit", store, "--json")
    (table,) = json.loads(outcome.out)["sections"][1]["tables"]
    assert table["rows"][-1][:3] == ["tiny-sim-b: test", "64", "55,334"]


@pytest.mark.parametrize(
    ("name", "paper", "label", "theirs"),
    [
        ("cora", "Cora", "Cora", "0.85"),
        ("reddit-sim", "Reddit", "reddit-sim", "0.85 on Reddit"),
        ("/data/my-reddit", "Reddit", "my-reddit", "0.85"),
        ("reddit", "Reddit", "Reddit", "0.85"),
    ],
)
def test_stand_ins_are_never_called_by_the_papers_name(
    name: str, paper: str, label: str, theirs: str
) -> None:
    data = scale.DataSet(
        paper=paper, name=name, config=scale.smoke().small.config, sizes=(), size_epochs=1
    )
    assert (data.label, beside(0.85, data, digits=2)) == (label, theirs)


def test_seeds_are_those_asked_for() -> None:
    three = scale.with_seeds(scale.full(), 3)
    assert [d.seeds for d in three.data] == [d.size_seeds for d in three.data] == [3, 3, 3]
    assert three.large.limit("graphsage-gcn").seeds is None
    assert (
        three.large.limit("graphsage-gcn").epochs
        == scale.full().large.limit("graphsage-gcn").epochs
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["figure4"], "no experiment 'figure4'; did you mean 'figure"),
        (["datasets", "--reddit", "nowhere/at-all"], "no file or folder nowhere/at-all"),
    ],
)
def test_mistakes_are_one_sentence(
    capfd: Capture, tmp_path: Path, args: list[str], message: str
) -> None:
    outcome = reproduce(capfd, tmp_path, tmp_path, *args)
    assert outcome.code == 1
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_a_graph_without_validation_nodes_is_refused(capfd: Capture, tmp_path: Path) -> None:
    config = GenerateConfig(nodes=60, edges=120, features=4, classes=2, train=30, val=0, test=30)
    generate(config, tmp_path / "mine")
    outcome = reproduce(capfd, tmp_path, tmp_path, "datasets", "--reddit", tmp_path / "mine")
    assert outcome.code == 1
    assert "mine has no val nodes" in outcome.err


def test_figures_and_tables_of_a_section_have_names_of_their_own(tmp_path: Path) -> None:
    table = Table(("a|b",), [("c",)], "T")
    parts: list[Content] = [Figure("<svg/>", "F"), table, Figure("<svg>2</svg>", "F"), table]
    files = write([Section("id", "Title", "Q?", parts)], scale.smoke(), tmp_path)
    assert [f.name for f in files] == ["report.html", "id.svg", "id-2.svg", "id.md", "id-2.md"]
    assert (tmp_path / "id-2.svg").read_text() == "<svg>2</svg>\n"
    assert markdown(table).splitlines()[0] == "| a\\|b |"
