"""`python -m benchmarks speed --device cuda`: its page is what was measured."""

from pathlib import Path

import pytest
import torch
from benchmarks.commands import app
from benchmarks.pages import NOT_YET

from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_device_one_sentence(capfd: Capture, tmp_path: Path) -> None:
    done = run_cli(capfd, "speed", "--device", "cuda", "--results", tmp_path, commands=app)
    assert done.code == 1
    assert "there is none here" in done.err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_every_figure_can_be_measured(capfd: Capture, tmp_path: Path) -> None:
    folders = ["--results", tmp_path, "--docs", tmp_path]
    done = run_cli(capfd, "speed", "--device", "cuda", "--quick", *folders, commands=app)
    assert done.code == 0, done.err
    assert NOT_YET not in (tmp_path / "gpu.md").read_text()
