"""The examples of the documentation run as they are printed."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"

# Not scale.md, whose example runs under torchrun, nor theory.md, which tests/proofs runs.
PAGES = ["architecture.md", "data.md", "diagnose.md", "report.md", "training.md"]


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
    assert with_examples == {*PAGES, "scale.md", "theory.md"}
