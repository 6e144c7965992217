"""How commands end: exit codes, signals in real processes, full disks, and errors inside."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fastgcn import Run, fit, load, save
from fastgcn.data.generate import generate
from fastgcn.data.generate_config import GenerateConfig
from fastgcn.data.shards import shard
from fastgcn.errors import InputError
from fastgcn.train.run import RunFolder
from tests.backends.ranks.launch import environment, torchrun
from tests.cli_runner import run_cli
from tests.communities import communities, quick, weights_of, without_times
from tests.small_disk import small_disk

TRAIN = [
    "train", "store", "--run-dir", "run", "--preset", "paper", "--samples", "20", "--hidden", "8",
    "--batch-size", "16", "--early-stopping", "none", "--device", "cpu", "--threads", "1",
]  # fmt: skip


def started(folder: Path, *command: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fastgcn", *map(str, command)], cwd=folder, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(there: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait until something is there; a process that ends before is a failure."""
    deadline = time.monotonic() + 120
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "name", "code"),
    [
        (signal.SIGINT, "Ctrl-C", 130),
        (signal.SIGTERM, "SIGTERM", 143),
        (signal.SIGHUP, "SIGHUP", 129),
    ],
)
def test_a_signal_stops_training_after_an_epoch(
    number: int, name: str, code: int, tmp_path: Path
) -> None:
    save(communities(), tmp_path / "store")
    process = started(tmp_path, *TRAIN, "--epochs", 100_000)
    wait_for((tmp_path / "run" / "state.safetensors").exists, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert err.splitlines()[-1] == f"Stopped by {name}; continue with: fastgcn train --resume run"
    assert "Traceback" not in err
    folder = RunFolder.open(tmp_path / "run")
    checkpoint = folder.load_checkpoint()
    assert checkpoint is not None
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert checkpoint.progress["epochs"] == len(lines), "no epoch is lost"
    files = {"config.json", "metrics.jsonl", "state.safetensors"}
    assert {file.name for file in (tmp_path / "run").iterdir()} == files


def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    save(communities(), tmp_path / "store")
    process = started(tmp_path, *TRAIN, "--epochs", 100_000)
    wait_for((tmp_path / "run" / "state.safetensors").exists, process)
    process.terminate()
    process.communicate(timeout=60)
    done = len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    about["config"]["epochs"] = done + 5
    (tmp_path / "run" / "config.json").write_text(json.dumps(about))
    with started(tmp_path, "train", "--resume", "run") as again:
        assert again.wait(timeout=100) == 0
    run = Run.load(tmp_path / "run")
    whole = fit(load(tmp_path / "store"), run.config)
    assert weights_of(run.model) == weights_of(whole.model)
    assert [*map(without_times, run.history)] == [*map(without_times, whole.history)]


def test_sigterm_while_a_store_is_written(tmp_path: Path) -> None:
    save(communities(name="old"), tmp_path / "out")
    sizes = ["--nodes", 400_000, "--edges", 4_000_000, "--features", 64, "--classes", 4]
    process = started(tmp_path, "generate", "out", *sizes, "--force")
    wait_for((tmp_path / ".out.partial" / "features.npy").exists, process)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert (
        err.splitlines()[-1]
        == "Stopped by SIGTERM; nothing was kept; the same command starts again"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert load(tmp_path / "out").name == "old"


def test_an_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    """As under `nohup`."""
    save(communities(), tmp_path / "store")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = started(tmp_path, *TRAIN, "--epochs", 100_000)
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for((tmp_path / "run" / "state.safetensors").exists, process)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert "Stopped by SIGTERM" in err


def test_sigterm_under_torchrun(tmp_path: Path) -> None:
    save(communities(), tmp_path / "store")
    command = torchrun(2, "-m", "fastgcn", *TRAIN, "--epochs", 100_000)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for((tmp_path / "run" / "state.safetensors").exists, process)
        process.terminate()
        _, err = process.communicate(timeout=100)
    assert err.count("Stopped by SIGTERM; continue with: fastgcn train --resume run\n") == 1, err
    checkpoint = RunFolder.open(tmp_path / "run").load_checkpoint()
    assert checkpoint is not None
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert checkpoint.progress["epochs"] == len(lines), "no epoch is lost"
    assert not [file for file in (tmp_path / "run").iterdir() if file.name.startswith(".")]


def test_a_callback_that_ends_the_run_ends_it_in_one_process_as_before() -> None:
    run = fit(communities(), quick(epochs=9), callbacks=[lambda record: record["epoch"] == 4])
    assert len(run.history) == 4


@pytest.mark.parametrize(
    ("command", "wrote"),
    [
        (["shard", "store", "--out", "parts"], "parts"),
        (["import", "store", "--out", "copy"], "copy"),
        (["embed", "run", "--out", "rows.npy"], "rows.npy"),
        (["embed", "run", "--out", "rows.parquet"], "rows.parquet"),
        (["embed", "run", "--out", "rows.csv"], "rows.csv"),
        (["predict", "run", "--out", "p.csv"], "p.csv"),
        (["predict", "run", "--out", "p.parquet"], "p.parquet"),
        (["report", "run"], "run/report.html"),
    ],
)
def test_a_full_disk(
    command: list[str],
    wrote: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(communities(n=600), "store")
    fit(load("store"), quick(epochs=1), run_dir="run")
    run_cli(capfd, *command)  # compiles, and leaves an old file
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    force = ["--force"] if command[0] in ("shard", "import") else []
    with small_disk(1000):
        outcome = run_cli(capfd, *command, *force)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == (
        f"Error: could not write {wrote}: File too large; free some space or choose another "
        "place; nothing was left behind"
    )
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_full_disk_in_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(communities(), "store")
    with small_disk(3000):
        outcome = run_cli(capfd, *TRAIN, "--epochs", 50)
    assert outcome.code == 1
    assert re.fullmatch(
        r"Error: could not write run/(metrics.jsonl|state.safetensors): File too large; free some "
        "space, then continue with: fastgcn train --resume run",
        outcome.err.splitlines()[-1],
    )
    assert not [file for file in Path("run").iterdir() if file.name.startswith(".")]
    assert run_cli(capfd, "train", "--resume", "run").code == 0
    assert len(Run.load("run").history) == 50
    with small_disk(800):
        outcome = run_cli(capfd, *TRAIN, "--run-dir", "other")
    assert "could not write other/config.json: File too large" in outcome.err
    assert not Path("other").exists()


def test_an_error_inside(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def broken(*_: object) -> None:
        raise TypeError("no such thing\x1b[31m")

    monkeypatch.setattr("fastgcn.cli.data.load_graph", broken)
    outcome = run_cli(capfd, "info", "digits")
    assert outcome.code == 3
    (file,) = tmp_path.iterdir()
    assert outcome.err == (
        "Error: something inside fastgcn failed (TypeError: no such thing\\x1b[31m), which is a "
        f"bug and not your mistake; please report it with the file {file}\n"
    )
    text = file.read_text()
    assert text.startswith("fastgcn ")
    assert "fastgcn info digits" in text
    assert 'raise TypeError("no such thing' in text
    outcome = run_cli(capfd, "--debug", "info", "digits")
    assert outcome.code == 3
    assert "Traceback (most recent call last):" in outcome.err


def test_exit_codes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(capfd, "info", "digits", "--json").code == 0
    assert run_cli(capfd, "info", "nowhere").code == 1
    assert run_cli(capfd, "info", "digits", "--no-such-flag").code == 2
    assert run_cli(capfd, "no-such-command").code == 2
    outcome = run_cli(capfd, "--debug", "info", "nowhere")
    assert outcome.code == 1
    assert "Traceback" in outcome.err


def test_parts_of_other_sharding_are_whole_after_sigterm(tmp_path: Path) -> None:
    shard(communities(name="old"), 2, tmp_path / "parts")
    code = (
        "import os, signal, sys\n"
        "import fastgcn.data.shards as shards\n"
        "usual = shards._write_part\n"
        "def write(arrays, whole, number, folder):\n"
        "    usual(arrays, whole, number, folder)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "shards._write_part = write\n"
        "from fastgcn.cli import main\n"
        "main()\n"
    )
    save(communities(), tmp_path / "store")
    done = subprocess.run(
        [sys.executable, "-c", code, "shard", "store", "--out", "parts", "--force"],
        cwd=tmp_path, env=os.environ | environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 143
    assert "Stopped by SIGTERM" in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["parts", "store"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_the_race(tmp_path: Path, number: signal.Signals) -> None:
    generate(
        GenerateConfig(nodes=20_000, edges=200_000, features=64, classes=4), tmp_path / "store"
    )
    with started(tmp_path, "train", "store", "--run-dir", "run", "--device", "cpu") as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "%" in line)
        assert said.startswith("Racing candidates")
        process.send_signal(number)
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        last = process.stderr.read().splitlines()[-1]
        assert last == f"Stopped by {name}; nothing was kept; the same command starts again"
    assert process.returncode == 128 + number
    assert [file.name for file in tmp_path.iterdir()] == ["store"]


def test_a_folder_with_a_run_is_refused_before_the_race(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(communities(), tmp_path / "store")
    fit(communities(), quick(), run_dir=tmp_path / "run")
    (tmp_path / "file").touch()
    monkeypatch.delattr("fastgcn.train.race.race")
    for name, why in (("run", "holds a run already"), ("file", "a file is in its place")):
        outcome = run_cli(capfd, "train", tmp_path / "store", "--run-dir", tmp_path / name)
        assert (outcome.code, why in outcome.err) == (1, True), outcome.err
        with pytest.raises(InputError, match=why):
            fit(communities(), run_dir=tmp_path / name)
