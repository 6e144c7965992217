"""The examples and notebooks of the docs run as they are printed, and the site is whole."""

import pkgutil
import re
from pathlib import Path

import pytest

import fastgcn
from fastgcn.config import SETTINGS
from tools import site

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# The log tells of the code as it was.
CURRENT = [ROOT / "README.md", *sorted(set(DOCS.rglob("*.md")) - {DOCS / "LOG.md"})]

# Not scale.md, whose example runs under torchrun, theory.md, which tests/proofs runs, nor
# tutorial.md, which tests/test_tutorial.py runs.
PAGES = [
    "architecture.md", "data.md", "diagnose.md", "export.md", "own-networks.md", "report.md",
    "start.md", "training.md", "tuning.md",
]  # fmt: skip


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
        found += [(f"{page}, example {number}", code) for number, code in enumerate(blocks, 1)]
    return found


@pytest.mark.parametrize(("name", "code"), examples(), ids=lambda value: value.split("\n")[0])
def test_an_example_runs(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {"__name__": "example"})


def test_every_other_page_is_without_examples_or_tested_elsewhere() -> None:
    with_examples = {page.name for page in DOCS.glob("*.md") if "```python" in page.read_text()}
    assert with_examples == {*PAGES, "scale.md", "theory.md", "tutorial.md"}


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_modules_names_and_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text("utf-8").replace("\\_", "_")
    for name in set(re.findall(r"\bfastgcn(?:\.\w+)+", text)):
        pkgutil.resolve_name(name)
    for path in re.findall(r"(?<![\w/.-])((?:\w+/)+\w+\.py)\b", text):
        assert any((place / path).exists() for place in (ROOT, ROOT / "src/fastgcn")), path


@pytest.mark.parametrize("page", sorted(DOCS.glob("notebooks/*.md")), ids=lambda page: page.stem)
def test_a_notebook_runs_and_shows_something(page: Path) -> None:
    """Cells run in one scope, as in a notebook; the site shows what they return."""
    text = page.read_text("utf-8")
    shown = site.with_outputs(text, page.name)
    assert len(shown) > 1.2 * len(text)
    assert "```text\n" in shown


def test_a_cell_shows_what_it_prints_and_its_last_value() -> None:
    class Table:
        def _repr_html_(self) -> str:
            return "<style scoped>td{}</style>\n\n<b>bold</b>"

    cells = ["x = 1\nprint('said')\nx + 1\n", "x = 5\n", "x\n"]
    first, second, third = site.run_cells(cells, "notebook")
    assert first == "\n```text\nsaid\n```\n\n```text\n2\n```\n"
    assert second == ""
    assert third == "\n```text\n5\n```\n"
    assert site._shown("", Table()) == '\n<div class="output">\n<b>bold</b></div>\n'


def test_the_reference_has_every_name_command_and_setting() -> None:
    names = site.names()
    for name, home in fastgcn._HOME.items():
        assert f"::: {home}.{name}\n" in names
    assert re.findall(r"^## fastgcn (\w+)$", site.commands(), re.MULTILINE)[0] == "train"
    assert "| `--batch-size` |" in site.commands()
    settings = site.settings()
    assert all(f"| `{name}` |" in settings for name in SETTINGS)
    assert "](docs/" not in site.changelog()


def test_pages_of_the_menu_are_there_and_their_markers_are_known() -> None:
    menu = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert len(menu) > 25
    for page in menu:
        text = (DOCS / page).read_text("utf-8")
        assert all(name in site.MAKERS for name in re.findall(r"`make docs`: (\w+) -->", text))
    missing = {page.name for page in DOCS.glob("*.md")} - {Path(page).name for page in menu}
    assert not missing, "pages that the menu lacks"


def test_the_readme_is_short_and_the_citation_is_of_this_version() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
    assert f"version: {fastgcn.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
