"""Every script in examples/ runs as it is, in seconds, and is short enough to read at once."""

import os
import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

# Packages that a script cannot do without and that are not in the `dev` extra.
NEEDS = {"lightning_loader": "pytorch_lightning", "export_onnx": "onnxruntime"}

# Starts three processes, which takes ten seconds of CPU: with FASTGCN_VERIFY=1 (`make verify`).
SLOW = {"torchrun"}


@pytest.mark.filterwarnings("ignore:.*:Warning:(pytorch_lightning|lightning_utilities)")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs_and_prints(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if script.stem in NEEDS:
        pytest.importorskip(NEEDS[script.stem])
    if script.stem in SLOW and "FASTGCN_VERIFY" not in os.environ:
        pytest.skip("starts processes; FASTGCN_VERIFY=1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(script: Path) -> None:
    text = script.read_text("utf-8")
    assert text.startswith('"""')
    assert len(text.splitlines()) < 60
