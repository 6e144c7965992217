"""`python -m benchmarks speed --device cuda`: its page is what was measured."""

from pathlib import Path

import pytest
import torch
from benchmarks.commands import app
from benchmarks.pages import NOT_YET

from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]


def test_the_page_shows_what_is_on_file(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    written, copy = ROOT / "docs" / "gpu.md", tmp_path / "gpu.md"
    copy.write_text(written.read_text())
    command = ["speed", "--device", "cuda", "--show", "--docs", tmp_path]
    done = run_cli(capfd, *command, commands=app)
    assert done.code == 0, done.err

    def figures(path: Path) -> list[str]:
        return [x for x in path.read_text().splitlines() if x and not x.startswith("**Stale**")]

    assert figures(copy) == figures(written)
    assert NOT_YET not in copy.read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_device_one_sentence(capfd: Capture) -> None:
    done = run_cli(capfd, "speed", "--device", "cuda", commands=app)
    assert done.code == 1
    assert "there is none here" in done.err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_every_figure_can_be_measured(capfd: Capture, tmp_path: Path) -> None:
    folders = ["--results", tmp_path, "--docs", tmp_path]
    done = run_cli(capfd, "speed", "--device", "cuda", "--quick", *folders, commands=app)
    assert done.code == 0, done.err
    assert NOT_YET not in (tmp_path / "gpu.md").read_text()
