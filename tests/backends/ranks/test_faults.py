"""A rank that is killed, and one that hangs: the run goes on, and ends as if nothing had been."""

import os
import re
import signal
import subprocess
from pathlib import Path

from fastgcn import fit
from fastgcn.data.load import load
from fastgcn.data.store import save
from fastgcn.train.run import Run, RunFolder
from tests.backends.ranks.launch import environment, torchrun
from tests.communities import communities, quick, without_times
from tests.thorough import slow

EPOCHS = 7
TIMEOUT = 20  # seconds: a rank that loads what the others have loaded is slow, and no more


def outlast(command: list[str], folder: Path) -> tuple[int, str]:
    """Run to the end; a process that says it stops is killed once the others have given up."""
    stopped: int | None = None
    lines = []
    with subprocess.Popen(
        command, env=environment(), cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"rank 1 is process (\d+)", line):
                stopped = int(found[1])
            if stopped is not None and f"waited {TIMEOUT} s for rank 1" in line:
                os.kill(stopped, signal.SIGKILL)
                stopped = None
    return process.returncode, "".join(lines)


@slow
def test_a_killed_and_a_hanging_rank(tmp_path: Path) -> None:
    save(communities(), tmp_path / "store")
    settings = ["hidden=8", "samples=20", "batch_size=16", "draws='independent'", "skip=false",
                "distribution='importance'", "self_term='sampled'", "dropout=0.0",
                "norm='none'", "bias=false", "feature_scaling='none'", "input_skip=false",
                "learning_rate=0.01", "early_stopping='none'", "patience=100",
                "normalization='symmetric'", "inductive=true"]  # fmt: skip
    flags = [word for setting in settings for word in ("--set", setting)]
    train = ["train", "store", "--run-dir", "run", "--timeout", TIMEOUT, "--threads", 1, *flags,
             "--epochs", EPOCHS, "--device", "cpu"]  # fmt: skip
    command = torchrun(2, "-m", "tests.backends.ranks.victim", *train, restarts=2)
    code, said = outlast(command, tmp_path)
    assert code == 0, said
    assert said.count("training fastgcn") == 3  # lives
    assert re.search(rf"rank 0 waited {TIMEOUT} s for rank 1 to exchange .*hangs, or needs", said)
    run = Run.load(tmp_path / "run")
    config = RunFolder.open(tmp_path / "run").config
    assert config == quick(epochs=EPOCHS, early_stopping="none")
    whole = fit(load(tmp_path / "store"), config)
    assert len(run.history) == EPOCHS
    for ours, theirs in zip(run.history, whole.history, strict=True):
        for name, value in without_times(ours).items():
            assert abs(value - theirs[name]) < 1e-5, name
