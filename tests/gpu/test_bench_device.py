"""`fastgcn bench speed --device cuda`: its page is what was measured."""

from pathlib import Path

import pytest
import torch

from fastgcn.bench.results import Results
from fastgcn.bench.speed import page
from fastgcn.bench.speed.device.figures import DEVICE_FIGURES
from fastgcn.bench.speed.effort import full
from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parent.parent.parent


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
    done = run_cli(capfd, "bench", "speed", "--device", "cuda")
    assert done.code == 1
    assert "there is none here" in done.err


def test_another_device_is_refused(capfd: Capture) -> None:
    done = run_cli(capfd, "bench", "speed", "--device", "tpu")
    assert done.code == 1
    assert "device must be cpu or cuda, got 'tpu'" in done.err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_every_figure_can_be_measured(capfd: Capture, tmp_path: Path) -> None:
    made = tmp_path / "gpu.md"
    command = ["bench", "speed", "--device", "cuda", "--quick", "--docs", made]
    done = run_cli(capfd, *command, "--results", tmp_path / "speed.jsonl")
    assert done.code == 0, done.err
    assert page.NOT_YET not in made.read_text()
