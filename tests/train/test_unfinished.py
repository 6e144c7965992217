"""A run that was killed, interrupted or is still in training is used from its best epoch so far."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn import Run, evaluate, fit, load, predict, resume, save
from fastgcn.errors import FormatError, InputError
from fastgcn.train.run_files import read_safetensors, safetensors_bytes
from tests.cli.test_ending import TRAIN, started, wait_for
from tests.cli_runner import run_cli
from tests.communities import communities, quick, weights_of, without_times
from tests.thorough import some


def saved_epochs(run: Path) -> int:
    return int(Run.load(run).metrics["epochs"])


@pytest.mark.parametrize("number", some([signal.SIGKILL, signal.SIGINT], every=2))
def test_every_command_uses_the_best_epoch(
    number: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = communities(node_ids=[f"n{i}" for i in range(60)])
    save(graph, tmp_path / "store")
    run = tmp_path / "run"
    process = started(tmp_path, *TRAIN, "--learning-rate", 0.05, "--epochs", 100_000)
    wait_for((run / "state.safetensors").exists, process)
    still = saved_epochs(run)  # while it trains
    wait_for(lambda: saved_epochs(run) > still, process)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert not (run / "result.json").exists()

    found = Run.load(run)
    epochs, best = found.metrics["epochs"], found.metrics["best_epoch"]
    said = (
        f"{run} is not finished; epoch {best}, the best of the {epochs} so far, is used, without "
        f"calibration; continue it with: fastgcn train --resume {run}"
    )
    store = load(tmp_path / "store")
    whole = fit(store, found.config.replace(epochs=epochs, calibrate=False))
    assert weights_of(found.model) == weights_of(whole.model)
    assert found.metrics["best_epoch"] == whole.metrics["best_epoch"]
    assert [*map(without_times, found.history)] == [*map(without_times, whole.history)]
    np.testing.assert_array_equal(predict(found, store), predict(whole, store))
    assert found.class_names == tuple(graph.class_names or ())
    assert found.stopped == f"it was interrupted after epoch {epochs}, or is still in training"

    commands: list[list[Any]] = [
        ["evaluate", run, "--json"],
        ["predict", run, "--nodes", "n3", "--out", "-"],
        ["embed", run, "--nodes", "n3", "--out", "-"],
        ["explain", run, "--node", "n3"],
        ["report", run, "--out", tmp_path / "report.html"],
    ]
    outputs = {}
    for command in commands:
        outcome = run_cli(capfd, *command)
        assert outcome.code == 0, outcome.err
        assert outcome.err.count(said) == 1, outcome.err
        outputs[command[0]] = outcome.out
    score = evaluate(whole, store, "test")
    assert json.loads(outputs["evaluate"])["micro_f1"] == pytest.approx(score.micro_f1)
    assert outputs["predict"].splitlines()[1].startswith('"n3"')
    page = (tmp_path / "report.html").read_text()
    assert f"This run is not finished: {found.stopped}." in page
    assert f"epoch {best} of {epochs} kept" in page


def interrupted(folder: Path, **settings: Any) -> Path:
    """A run of two classes, one of them rare, stopped after four epochs."""

    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(rare(), quick(epochs=9, **settings), run_dir=folder, callbacks=[stop])
    return folder


def rare() -> Any:
    labels = np.zeros(200, int)
    labels[::21] = 1
    return communities(n=200, classes=2, labels=labels, class_names=["usual", "rare"])


def test_what_validation_selects_by_is_kept(tmp_path: Path) -> None:
    run = Run.load(interrupted(tmp_path / "run"))
    assert run.metrics["metric"] == "average_precision"
    assert run.model.decision.positive == 1
    scores = [each["val_average_precision"] for each in run.history]
    assert run.metrics["val_average_precision"] == max(scores)
    assert re.match("it was interrupted after epoch 4", run.stopped or "")
    assert resume(tmp_path / "run", rare()).stopped is None


def test_averaged_weights_are_those_that_were_validated(tmp_path: Path) -> None:
    run = Run.load(interrupted(tmp_path / "run", averaging=0.9))
    scores = evaluate(run, rare(), "val").scores()
    assert scores["loss"] == pytest.approx(run.metrics["val_loss"], rel=1e-4)


def test_a_new_run_can_start_from_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save(rare(), tmp_path / "store")
    begun = interrupted(tmp_path / "run")
    outcome = run_cli(
        capfd, "train", tmp_path / "store", "--from", begun, "--epochs", 2,
        "--run-dir", tmp_path / "next",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert Run.load(tmp_path / "next").metrics["epochs"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": ["a", "b", "c"]}, "it has 3 class_names for a network of 2"),
        ({"sizes": [2**30, 2**30, 2]}, "it has no weights of the sizes"),
        ({"metric": None}, "network.metric must be"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = interrupted(tmp_path / "run")
    described = network_of(folder) | changes
    rewrite(folder, {"network": json.dumps(described)})
    with pytest.raises(FormatError, match=message):
        Run.load(folder)


def test_a_state_of_an_earlier_version_is_refused_as_before(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "run")
    rewrite(folder, {})
    with pytest.raises(InputError, match="is not finished and has no epoch to use yet"):
        Run.load(folder)
    assert resume(folder, rare()).stopped is None


def network_of(folder: Path) -> dict[str, Any]:
    metadata = read_safetensors(folder / "state.safetensors", ("network",))[1]
    found: dict[str, Any] = json.loads(metadata["network"])
    return found


def rewrite(folder: Path, metadata: dict[str, str]) -> None:
    """Write the state again with other metadata beside its progress."""
    tensors, before = read_safetensors(folder / "state.safetensors", ("progress",))
    data = safetensors_bytes(tensors, {"progress": before["progress"], **metadata})
    (folder / "state.safetensors").write_bytes(data)
