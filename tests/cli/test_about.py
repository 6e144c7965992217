"""`fastgcn settings`, `fastgcn doctor` and shell completion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastgcn.config import SETTINGS
from fastgcn.doctor import examine
from tests.cli_runner import run_cli

Capture = pytest.CaptureFixture[str]


def test_settings_lists_every_setting_with_its_default(capfd: Capture) -> None:
    found = json.loads(run_cli(capfd, "settings", "--json").out)["settings"]
    assert [each["name"] for each in found] == list(SETTINGS)
    assert all(each["help"] == SETTINGS[each["name"]].help for each in found)
    (patience,) = [each for each in found if each["name"] == "patience"]
    assert patience["flag"] == "--patience"
    assert patience["default"] == 100
    assert patience["automatic"] is True
    assert patience["allowed"] == "a whole number, at least 1"
    shown = run_cli(capfd, "settings").out
    assert all(name in shown for name in SETTINGS)


def test_settings_shows_one_by_its_flag_and_refuses_an_unknown_one(capfd: Capture) -> None:
    one = run_cli(capfd, "settings", "--", "--batch-size")
    assert one.code == 0
    assert "batch_size" in one.out
    assert "at least 1" in one.err
    wrong = run_cli(capfd, "settings", "batchsize")
    assert wrong.code == 1
    assert "there is no setting 'batchsize'; did you mean 'batch_size'?" in wrong.err


def test_doctor_finds_a_working_installation(capfd: Capture) -> None:
    done = run_cli(capfd, "doctor", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["ok"] is True
    checks = {each["name"]: each for each in found["checks"]}
    assert {"libraries", "cache folder", "kernels", "pictures"} <= checks.keys()
    assert "two trial runs are right" in checks["kernels"]["found"]
    assert "torch" in found["versions"]
    assert found["folders"]["compiled kernels"]


def test_doctor_names_what_is_broken_and_how_to_mend_it(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastgcn.doctor._kernels", lambda: 1 / 0)
    monkeypatch.setenv("FASTGCN_DATA", str(tmp_path / "nowhere"))
    done = run_cli(capfd, "doctor")
    assert done.code == 1
    assert "ZeroDivisionError" in done.out
    assert "set NUMBA_CACHE_DIR to a folder" in done.err
    assert "FASTGCN_DATA must name a folder" in " ".join(done.out.split())
    assert "Everything works" not in done.err
    assert [check.name for check in examine().broken] == ["cache folder", "kernels"]


def test_doctor_says_which_library_cannot_be_loaded(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    done = run_cli(capfd, "doctor", "--json")
    assert done.code == 1
    (broken,) = [each for each in json.loads(done.out)["checks"] if not each["ok"]]
    assert broken["found"].startswith("pooch cannot be loaded")
    assert broken["fix"] == "reinstall it: pip install --force-reinstall pooch"


def test_the_shell_completes_commands() -> None:
    asked = {"_FASTGCN_COMPLETE": "complete_bash", "COMP_WORDS": "fastgcn set", "COMP_CWORD": "1"}
    code = "from fastgcn.cli import app; app(prog_name='fastgcn')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["settings"], done.stderr
