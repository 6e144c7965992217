"""`fastgcn bench speed --device cuda`: its page is what was measured."""

from pathlib import Path

import pytest
import torch
from benchmarks.commands import app as bench
from benchmarks.results import Results
from benchmarks.speed import page
from benchmarks.speed.device.figures import DEVICE_FIGURES
from benchmarks.speed.effort import full

from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]


def test_the_page_shows_what_is_on_file(tmp_path: Path) -> None:
    kept = Results(ROOT / "results" / "speed-cuda.jsonl")
    copy = tmp_path / "gpu.md"
    copy.write_text((ROOT / "docs" / "gpu.md").read_text())
    page.write_page(copy, full(), kept, DEVICE_FIGURES)
    assert copy.read_text() == (ROOT / "docs" / "gpu.md").read_text()
    shown = page.shown(full(), kept, DEVICE_FIGURES)
    assert shown.keys() == {figure.name for figure in DEVICE_FIGURES}, "all was measured"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_device_one_sentence(capfd: Capture) -> None:
    done = run_cli(capfd, "speed", "--device", "cuda", commands=bench)
    assert done.code == 1
    assert "there is none here" in done.err


def test_another_device_is_refused(capfd: Capture) -> None:
    done = run_cli(capfd, "speed", "--device", "tpu", commands=bench)
    assert done.code == 1
    assert "device must be cpu or cuda, got 'tpu'" in done.err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_every_figure_can_be_measured(capfd: Capture, tmp_path: Path) -> None:
    made = tmp_path / "gpu.md"
    command = ["speed", "--device", "cuda", "--quick", "--docs", made]
    done = run_cli(capfd, *command, "--results", tmp_path / "speed.jsonl", commands=bench)
    assert done.code == 0, done.err
    assert page.NOT_YET not in made.read_text()
