"""The examples of the documentation run as they are printed, and what pages name is there."""

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# The log tells of the code as it was.
CURRENT = [ROOT / "README.md", *sorted(set(DOCS.rglob("*.md")) - {DOCS / "LOG.md"})]

# Not scale.md, whose example runs under torchrun, theory.md, which tests/proofs runs, nor
# tutorial.md, which tests/test_tutorial.py runs.
PAGES = [
    "architecture.md", "data.md", "diagnose.md", "export.md", "own-networks.md", "report.md",
    "training.md", "tuning.md",
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
    with_examples = {page.name for page in DOCS.rglob("*.md") if "```python" in page.read_text()}
    assert with_examples == {*PAGES, "scale.md", "theory.md", "tutorial.md"}


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_modules_names_and_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text("utf-8").replace("\\_", "_")
    for name in set(re.findall(r"\bfastgcn(?:\.\w+)+", text)):
        pkgutil.resolve_name(name)
    for path in re.findall(r"(?<![\w/.-])((?:\w+/)+\w+\.py)\b", text):
        assert any((place / path).exists() for place in (ROOT, ROOT / "src/fastgcn")), path
