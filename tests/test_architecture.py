"""What is public, that examples run, and that links lead somewhere."""

import doctest
import importlib
import os
import pkgutil
import re
from pathlib import Path

import pytest

import fastgcn

SOURCE = Path(fastgcn.__file__).parent
ROOT = SOURCE.parent.parent
MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages([str(SOURCE)], "fastgcn.")
    if not info.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_the_readme_example_runs(
    real_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    monkeypatch.setenv("FASTGCN_DATA", str(real_data))
    scope: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert 0.8 < float(capsys.readouterr().out) < 1


def test_public_names_are_declared_once() -> None:
    assert fastgcn.__all__ == ["__version__", *fastgcn._HOME]
    assert len(set(fastgcn.__all__)) == len(fastgcn.__all__)


def test_docs_link_to_files_that_exist() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
