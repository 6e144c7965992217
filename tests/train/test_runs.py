"""A run's folder: round trips, what is in it, and what happens when it is damaged."""

import hashlib
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fastgcn import Run, embed, fingerprint, fit, predict, resume
from fastgcn.errors import FastGCNError, FormatError, InputError, MissingFileError
from fastgcn.writing import write_bytes
from tests.communities import communities, quick, weights_of

GRAPH = communities().with_source({"data": "communities", "seed": 0})
SETTINGS = quick(hidden=(8, 5), bias=True, feature_scaling="row", normalization="row", seed=3)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run; tests that change its folder copy it first."""
    return fit(GRAPH, SETTINGS, run_dir=tmp_path_factory.mktemp("runs") / "kept")


@pytest.fixture
def folder(kept: Run, tmp_path: Path) -> Path:
    """A copy of the finished run's folder."""
    assert kept.path is not None
    return Path(shutil.copytree(kept.path, tmp_path / "copy"))


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """The folder of a run that was stopped after two epochs, with a state to resume from."""

    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fastgcn.train.loop._CHECKPOINT_EVERY", 0)
        fit(GRAPH, SETTINGS, run_dir=tmp_path / "unfinished", callbacks=[stop])
    return tmp_path / "unfinished"


def test_a_loaded_run_is_the_run_that_was_saved(kept: Run) -> None:
    assert kept.path is not None
    loaded = Run.load(kept.path)
    assert weights_of(loaded.model) == weights_of(kept.model)
    np.testing.assert_array_equal(predict(loaded, GRAPH), predict(kept, GRAPH))
    np.testing.assert_array_equal(embed(loaded, GRAPH), embed(kept, GRAPH))
    np.testing.assert_array_equal(
        predict(loaded, GRAPH, samples=20), predict(kept, GRAPH, samples=20)
    )
    for field in ("config", "history", "metrics", "class_names", "fingerprint", "path"):
        assert getattr(loaded, field) == getattr(kept, field), field
    assert loaded.source == GRAPH.source
    assert not loaded.model.training


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_run_without_class_names(tmp_path: Path, multilabel: bool) -> None:
    graph = communities(class_names=None, multilabel=multilabel)
    run = fit(graph, quick(), run_dir=tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    assert loaded.class_names is None
    assert loaded.source is None
    assert loaded.model.multilabel is multilabel
    np.testing.assert_array_equal(predict(loaded, graph), predict(run, graph))


def test_what_is_in_the_folder(kept: Run) -> None:
    assert kept.path is not None
    assert {file.name for file in kept.path.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "result.json",
        "state.safetensors",
    }
    with safe_open(kept.path / "model.safetensors", "np") as file:
        metadata = file.metadata()
    assert metadata["schema"] == "1"
    assert json.loads(metadata["config"]) == SETTINGS.to_dict()
    assert json.loads(metadata["class_names"]) == ["class-0", "class-1", "class-2"]
    assert metadata["fingerprint"] == fingerprint(GRAPH)
    about = json.loads((kept.path / "config.json").read_text())
    assert about["data"] == {"data": "communities", "seed": 0}
    assert about["fingerprint"] == fingerprint(GRAPH)
    lines = (kept.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == kept.history
    result = json.loads((kept.path / "result.json").read_text())
    for name, said in result.pop("files").items():
        assert hashlib.sha256((kept.path / name).read_bytes()).hexdigest() == said
    assert result == kept.metrics


def test_an_unfinished_run_without_a_state_does_not_load(unfinished: Path) -> None:
    (unfinished / "state.safetensors").unlink()
    with pytest.raises(InputError) as refused:
        Run.load(unfinished)
    assert str(refused.value) == (
        f"{unfinished} is not finished and has no epoch to use yet; continue it with: "
        f"fastgcn train --resume {unfinished}"
    )


def test_resuming_a_finished_run_loads_it(kept: Run, folder: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    again = resume(folder, GRAPH)
    assert weights_of(again.model) == weights_of(kept.model)
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def without(*keys: str) -> Callable[[Path], None]:
    """Takes keys out of a JSON file or of a safetensors file's metadata, and its checksum."""

    def change(path: Path) -> None:
        if path.suffix == ".json":
            values = json.loads(path.read_text())
            path.write_text(json.dumps({k: v for k, v in values.items() if k not in keys}))
            return
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        kept = {k: v for k, v in metadata.items() if k not in (*keys, "sha256")}
        save_file({k: v.clone() for k, v in load_file(path).items()}, path, kept or None)

    return change


def holding(text: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_bytes(text)

    return change


def losing_its_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def losing_a_tensor(path: Path) -> None:
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    del metadata["sha256"]
    tensors = load_file(path)
    save_file({k: tensors[k].clone() for k in sorted(tensors)[:-1]}, path, metadata)


@pytest.mark.parametrize(
    ("name", "damage", "error", "message"),
    [
        ("config.json", Path.unlink, MissingFileError, "is not a run: it has no config.json"),
        ("config.json", holding(b"{"), FormatError, "/config.json is not valid JSON"),
        ("config.json", holding(b"\xff"), FormatError, "/config.json is not valid JSON"),
        ("config.json", holding(b"[]"), FormatError, "is not a run of this version's schema"),
        ("config.json", without("schema"), FormatError, "is not a run of this version's schema"),
        ("config.json", without("data"), FormatError, "/config.json lacks data; train again"),
        ("model.safetensors", Path.unlink, MissingFileError, "/model.safetensors is missing"),
        ("model.safetensors", holding(b""), FormatError, "/model.safetensors is damaged"),
        ("model.safetensors", losing_its_end, FormatError, "/model.safetensors is damaged"),
        ("model.safetensors", losing_a_tensor, FormatError, "/model.safetensors is damaged"),
        ("model.safetensors", without("sizes"), FormatError, "its metadata lacks sizes"),
        ("metrics.jsonl", Path.unlink, MissingFileError, "/metrics.jsonl is missing"),
        ("metrics.jsonl", losing_its_end, FormatError, "/metrics.jsonl is damaged"),
        ("metrics.jsonl", holding(b"{}\n"), FormatError, "is damaged: it has 1 epochs of 3"),
        ("metrics.jsonl", holding(b"\xff\n"), FormatError, "/metrics.jsonl is damaged"),
        ("result.json", holding(b"{"), FormatError, "/result.json is not valid JSON"),
        ("result.json", without("epochs"), FormatError, "/result.json lacks epochs; train again"),
    ],
)
def test_a_damaged_run_is_named(
    folder: Path, name: str, damage: Any, error: type[Exception], message: str
) -> None:
    damage(folder / name)
    with pytest.raises(error) as refused:
        Run.load(folder)
    assert message in str(refused.value)
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("config.json", without("config"), "/config.json lacks config; train again"),
        ("config.json", without("fingerprint"), "/config.json lacks fingerprint; train again"),
        ("state.safetensors", losing_its_end, "/state.safetensors is damaged"),
        ("state.safetensors", without("progress"), "its metadata lacks progress"),
        ("state.safetensors", losing_a_tensor, "/state.safetensors is not the state of this run"),
        ("metrics.jsonl", holding(b""), "is damaged: it has 0 epochs of 2"),
    ],
)
def test_a_damaged_state_is_not_resumed(
    unfinished: Path, name: str, damage: Any, message: str
) -> None:
    damage(unfinished / name)
    with pytest.raises(FormatError) as refused:
        resume(unfinished, GRAPH)
    assert message in str(refused.value)


def test_a_run_that_lost_its_state_starts_over(unfinished: Path, kept: Run) -> None:
    (unfinished / "state.safetensors").unlink()
    assert weights_of(resume(unfinished, GRAPH).model) == weights_of(kept.model)


def test_no_damage_shows_a_traceback_of_a_library(folder: Path) -> None:
    """Bytes changed or cut off anywhere: the run loads, or one of our errors says why not."""
    rng = np.random.default_rng(0)
    refused = 0
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        for _ in range(25):
            data = bytearray(whole)
            at = int(rng.integers(len(data)))
            if rng.random() < 0.5:
                data[at] = int(rng.integers(256))
            else:
                del data[at:]
            file.write_bytes(data)
            try:
                Run.load(folder)
            except FastGCNError:
                refused += 1
        file.write_bytes(whole)
    assert refused > 30
    assert Run.load(folder).history


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="the disk is full"):
            write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left"
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"


def test_files_have_the_permissions_that_the_user_gives(kept: Run, tmp_path: Path) -> None:
    assert kept.path is not None
    (tmp_path / "plain").write_text("")
    usual = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept.path.iterdir()} == {usual}


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="is not a run: it has no config.json"):
        Run.load(tmp_path)
    with pytest.raises(MissingFileError, match="is not a run: it has no config.json"):
        resume(tmp_path / "nowhere", GRAPH)


def test_the_same_run_twice_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fit(GRAPH, SETTINGS, run_dir=tmp_path / name)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b")]
    assert files[0] == files[1]
    with safe_open(tmp_path / "a" / "model.safetensors", "pt") as file:
        assert set(file.metadata()) >= {"schema", "config", "class_names", "fingerprint"}


def test_names_of_features_are_kept_with_a_run(tmp_path: Path) -> None:
    names = ("größe", "b", "c", "d", "e", "f")
    run = fit(communities(feature_names=names), quick(), run_dir=tmp_path / "run")
    assert run.feature_names == Run.load(tmp_path / "run").feature_names == names
    without("feature_names")(tmp_path / "run" / "model.safetensors")
    assert Run.load(tmp_path / "run").feature_names is None, "runs of earlier versions load"


def test_a_file_is_not_written_where_a_folder_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="mine is a folder; name the file to write"):
        write_bytes(tmp_path / "mine", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
