"""One process at a time writes a run: real processes, one of them killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fastgcn import Run, fit, load, resume, save
from fastgcn.errors import BusyError, InputError
from fastgcn.locks import Lock
from fastgcn.train.run import RunFolder
from tests.cli_runner import run_cli
from tests.communities import communities, quick, without_times

# Trains without end, slowly; says `epoch` after each epoch.
TRAIN = """
import sys, time
import fastgcn.train.loop
from fastgcn import fit, load
from tests.communities import quick

fastgcn.train.loop._CHECKPOINT_EVERY = 0
def on_epoch(record):
    print("epoch", flush=True)
    time.sleep(0.2)
fit(load(sys.argv[1]), quick(epochs=600), run_dir=sys.argv[2], callbacks=[on_epoch])
"""


def test_a_second_process_is_refused_until_the_first_is_dead(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save(communities(), tmp_path / "store")
    run = tmp_path / "run"
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    with subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(tmp_path / "store"), str(run)],
        env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stdout is not None
        try:
            for _ in range(3):
                assert first.stdout.readline() == "epoch\n"
            holder = f"process {first.pid} on {socket.gethostname()}"
            for command in (["--resume", run], [tmp_path / "store", "--run-dir", run]):
                refused = run_cli(capfd, "train", *command)
                assert refused.code == 1
                assert refused.err.splitlines()[-1] == (
                    f"Error: {run} is being written by {holder}; wait until it has ended, or "
                    "stop it"
                )
            # Readers are not held up.
            used = run_cli(capfd, "evaluate", run)
            assert used.code == 0
            assert f"{run} is not finished; epoch " in used.err
            assert len((run / "metrics.jsonl").read_text().splitlines()) >= 3
        finally:
            first.send_signal(signal.SIGKILL)
    assert (run / ".lock").exists(), "a kill leaves the file, and no lock"
    about = json.loads((run / "config.json").read_text())
    about["config"]["epochs"] = 30
    (run / "config.json").write_text(json.dumps(about))
    assert run_cli(capfd, "train", "--resume", run).code == 0
    whole = fit(load(tmp_path / "store"), RunFolder.open(run).config)
    assert [*map(without_times, Run.load(run).history)] == [*map(without_times, whole.history)]
    assert not [file for file in run.iterdir() if file.name.startswith(".")]


def test_readers_of_a_finished_run_take_no_lock(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save(communities(), tmp_path / "store")
    run = tmp_path / "run"
    fit(load(tmp_path / "store"), quick(epochs=2), run_dir=run)
    lock = Lock(run / ".lock")
    lock.take("the run")
    assert run_cli(capfd, "predict", run, "--out", tmp_path / "p.csv").code == 0
    assert run_cli(capfd, "report", run).code == 0
    assert run_cli(capfd, "evaluate", run).code == 0
    assert resume(run, load(tmp_path / "store")).metrics["epochs"] == 2, "it is only read"
    lock.release()


def test_a_refused_run_takes_nothing_from_the_one_that_is_there(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def second(_: object) -> None:
        with pytest.raises(BusyError, match=r"being written by process \d+ on "):
            fit(communities(), quick(epochs=2), run_dir=run)
        with pytest.raises(BusyError):
            resume(run, communities())
        assert (run / ".lock").exists()

    fit(communities(), quick(epochs=2), run_dir=run, callbacks=[second])
    with pytest.raises(InputError, match=re.escape(f"{run} holds a run already")):
        fit(communities(), quick(epochs=2), run_dir=run)
    assert len(Run.load(run).history) == 2
    assert not (run / ".lock").exists()


def test_a_lock_without_its_holders_number(tmp_path: Path) -> None:
    lock = Lock(tmp_path / ".lock")
    lock.take("the run")
    lock.path.write_text("[" * 900)
    with pytest.raises(BusyError, match="the run is being written by another process; wait"):
        Lock(tmp_path / ".lock").take("the run")
    lock.release()
