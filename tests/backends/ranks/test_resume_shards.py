"""A run on shards is resumed under torchrun, by at most as many processes as there are parts."""

import json
from pathlib import Path

import pytest

from fastgcn import Run
from fastgcn.data.shards import shard
from tests.backends.ranks.launch import run_ranks
from tests.cli_runner import run_cli
from tests.communities import communities
from tests.thorough import slow


@slow
def test_a_run_on_two_parts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shard(communities(), 2, tmp_path / "parts")
    settings = ["--preset", "paper", "--samples", 20, "--hidden", 8, "--batch-size", 16,
                "--epochs", 3, "--early-stopping", "none", "--device", "cpu"]  # fmt: skip
    train = ["-m", "fastgcn", "train", "parts", "--run-dir", "run", *settings]
    done = run_ranks(2, *train, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    (run / "result.json").unlink()
    about = json.loads((run / "config.json").read_text())
    about["config"]["epochs"] = 5
    (run / "config.json").write_text(json.dumps(about))
    refused = run_ranks(3, "-m", "fastgcn", "train", "--resume", "run", cwd=tmp_path)
    assert "can be shared by at most 2 of the 3 processes" in refused.stderr
    alone = run_cli(capfd, "train", "--resume", run)
    assert alone.code == 1
    assert "is a folder of shards, for several processes: torchrun" in alone.err
    done = run_ranks(1, "-m", "fastgcn", "train", "--resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(Run.load(run).history) == 5
