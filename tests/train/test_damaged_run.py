"""Every file of a run, damaged in every way: only this package's errors."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fastgcn import Graph, Run, fit, predict, resume
from fastgcn.cli.output import show_result
from fastgcn.data.load import load_again
from fastgcn.data.store import save
from fastgcn.errors import FastGCNError, FormatError
from fastgcn.train.run import RunFolder
from tests.cli_runner import run_cli
from tests.communities import communities, quick
from tests.damage import Damage, damaged_copies, file_damage, json_damage, only_our_errors
from tests.thorough import some

SETTINGS = quick(epochs=2, history=True)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return communities().with_source({"data": "digits"})


@pytest.fixture(scope="module")
def whole(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    fit(graph, SETTINGS, run_dir=folder / "finished")
    shutil.copytree(folder / "finished", folder / "begun")
    (folder / "begun" / "result.json").unlink()
    (folder / "begun" / "model.safetensors").unlink()
    return folder


def check(folder: Path, cases: Iterable[Damage], use: Callable[[Path], object], copy: Path) -> int:
    """Use every damaged copy; returns how many could be used."""
    found = damaged_copies(folder, copy, cases)
    return sum(only_our_errors(what, lambda: use(copy)) for what in found)


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_damaged_json(whole: Path, tmp_path: Path, name: str) -> None:
    def use(folder: Path) -> None:
        found = RunFolder.open(folder)
        found.verify()
        if name == "result.json":
            show_result(found.load())

    cases = some(json_damage(whole / "finished" / name), every=4)
    check(whole / "finished", cases, use, tmp_path / "run")


def test_a_damaged_history(whole: Path, tmp_path: Path) -> None:
    first, second = (whole / "finished" / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "line.json").write_text(first)

    def cases() -> Iterator[Damage]:
        for what, damage in json_damage(tmp_path / "line.json"):
            if "line.json: " not in what:
                continue  # damage of a whole file

            def change(folder: Path, damage: Callable[[Path], object] = damage) -> None:
                shutil.copy(tmp_path / "line.json", folder / "line.json")
                damage(folder)
                line = (folder / "line.json").read_bytes()
                (folder / "metrics.jsonl").write_bytes(line + b"\n" + second.encode() + b"\n")

            yield what, change

    check(whole / "finished", cases(), Run.load, tmp_path / "run")


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors"])
def test_any_changed_bit_of_the_weights_is_noticed(
    whole: Path, graph: Graph, tmp_path: Path, name: str
) -> None:
    kind = "finished" if name.startswith("model") else "begun"
    use: Callable[[Path], object] = Run.load if kind == "finished" else _resumer(graph)
    shutil.copytree(whole / kind, tmp_path / "run")
    path = tmp_path / "run" / name
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in [*range(0, 200, 7), *rng.integers(0, len(good), 200)]:
        bad = bytearray(good)
        bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(FormatError, match=f"{name} is damaged: "):
            use(tmp_path / "run")


def _resumer(graph: Graph) -> Callable[[Path], object]:
    return lambda folder: resume(folder, graph)


def _rewritten(name: str, edit: Callable[[dict[str, Any], dict[str, str]], object]) -> Any:
    """Damage that a checksum does not show, because there is none."""

    def change(folder: Path) -> None:
        with safe_open(folder / name, "pt") as file:
            metadata = file.metadata()
        metadata.pop("sha256", None)
        tensors = {k: v.clone() for k, v in load_file(folder / name).items()}
        edit(tensors, metadata)
        save_file(tensors, folder / name, metadata)

    return change


def tensor_damage(name: str, tensors: dict[str, torch.Tensor]) -> Iterator[Damage]:
    for key, tensor in tensors.items():
        changes: dict[str, Any] = {
            "missing": None,
            "empty": tensor[:0] if tensor.ndim else torch.zeros(0),
            "a number": torch.zeros(()),
            "longer": torch.cat([tensor.reshape(-1), tensor.reshape(-1)]),
            "an integer": tensor.to(torch.int64),
            "of 8 bytes": tensor.to(torch.float64),
            "of 2 bytes": tensor.to(torch.float16),
            "under another name": ...,
        }
        for what, changed in changes.items():

            def edit(tensors: Any, _: Any, key: str = key, changed: Any = changed) -> None:
                old = tensors.pop(key)
                if changed is ...:
                    tensors["adam.99.exp_avg"] = old
                    tensors["adam.-1.step"] = old.clone()
                elif changed is not None:
                    tensors[key] = changed.clone().contiguous()

            yield f"{name}: {key} is {what}", _rewritten(name, edit)


def metadata_damage(name: str, metadata: dict[str, str]) -> Iterator[Damage]:
    values = ["", "x", "null", "[]", "{}", "true", "-1", "[6, 3]", "[6, 8, 3, 1]", '["a"]']
    values += ["[2147483647, 2147483647]", "[6.0, 8, 3]", "[" * 10_000, "9" * 30, '{"epochs": 99}']
    for key in metadata:
        for value in (None, *values):

            def edit(_: Any, found: Any, key: str = key, value: str | None = value) -> None:
                found.pop(key, None)
                if value is not None:
                    found[key] = value

            yield f"{name}: {key} is {value}", _rewritten(name, edit)


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors"])
def test_damaged_content(whole: Path, graph: Graph, tmp_path: Path, name: str) -> None:
    kind = "finished" if name.startswith("model") else "begun"
    use: Callable[[Path], object] = Run.load if kind == "finished" else _resumer(graph)
    path = whole / kind / name
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    cases = [*tensor_damage(name, load_file(path)), *metadata_damage(name, metadata)]
    check(whole / kind, iter(cases), use, tmp_path / "run")


def test_a_file_cut_off_or_replaced(whole: Path, graph: Graph, tmp_path: Path) -> None:
    for kind, name in [
        ("finished", "model.safetensors"),
        ("begun", "state.safetensors"),
        ("begun", "metrics.jsonl"),
    ]:
        use: Callable[[Path], object] = Run.load if kind == "finished" else _resumer(graph)
        check(whole / kind, file_damage(whole / kind / name), use, tmp_path / "run")


def test_the_command_verifies_a_run(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for kind in ("finished", "begun"):
        shutil.copytree(whole / kind, tmp_path / kind)
        assert "All checksums match." in run_cli(capfd, "info", tmp_path / kind, "--verify").err
    history = tmp_path / "finished" / "metrics.jsonl"
    history.write_text(history.read_text().replace("0.", "1.", 1))
    refused = run_cli(capfd, "info", tmp_path / "finished", "--verify")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == f"Error: {history} is damaged: its checksum has changed\n"


def test_a_run_of_an_earlier_version_is_read_and_cannot_be_verified(
    whole: Path, graph: Graph, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole / "finished", run)
    for name in ("model.safetensors", "state.safetensors"):
        _rewritten(name, lambda *_: None)(run)
    result = json.loads((run / "result.json").read_text())
    del result["files"]
    (run / "result.json").write_text(json.dumps(result))
    old, new = Run.load(run), Run.load(whole / "finished")
    np.testing.assert_array_equal(predict(old, graph), predict(new, graph))
    said = run_cli(capfd, "info", run, "--verify")
    assert said.code == 0
    assert "cannot be verified: it was written by an earlier version" in said.err


def test_every_score_must_be_a_number(whole: Path, tmp_path: Path) -> None:
    """The report writes all of them out."""
    run = tmp_path / "run"
    shutil.copytree(whole / "finished", run)
    result = json.loads((run / "result.json").read_text())
    for name in [name for name in result if name.startswith(("val_", "test_"))]:
        (run / "result.json").write_text(json.dumps(result | {name: ["0.5"]}))
        with pytest.raises(FormatError, match=name):
            Run.load(run)


def test_data_of_a_run_that_are_not_there(whole: Path, tmp_path: Path) -> None:
    save(communities(), tmp_path / "store")
    store = str(tmp_path / "store")
    splits: list[Any] = [1, [], {}, None, "x"]
    seeds: list[Any] = [-1, "x", []]
    data: list[dict[str, Any]] = [
        {"data": "nowhere"},
        {"data": store, "x": []},
        {"data": ""},
        {"data": "."},
    ]
    data += [{"data": "\0"}, *({"data": store, "split": split} for split in splits)]
    data += [{"data": store, "split": "random", "seed": seed} for seed in seeds]
    for source in data:
        with pytest.raises(FastGCNError):
            load_again(source, whole / "finished")
