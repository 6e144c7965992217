"""docs/theory.md says which test shows what; those tests and functions must be there."""

import re
from pathlib import Path

import pytest

import fastgcn.sampling.variance

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "theory.md").read_text(encoding="utf-8")


def test_every_proof_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    written = {
        name
        for file in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named
    assert named <= written


def test_every_variance_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(\w+_variance)`", PAGE))
    assert named == {name for name in vars(fastgcn.sampling.variance) if name.endswith("_variance")}


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "theory.md", "exec"), {})
    assert float(capsys.readouterr().out) > 0
