"""Settings in files and on the command line: whatever they hold, the answer is one sentence."""

import os
from pathlib import Path

import pytest

from fastgcn.errors import FormatError, MissingFileError
from fastgcn.settings import read_assignments, read_toml


@pytest.mark.parametrize(
    "text",
    ["seed = " + "9" * 5000, "hidden = " + "[" * 5000 + "]" * 5000, "seed =", "\0", "\ud800"],
)
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.toml").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(FormatError, match="is not valid TOML"):
        read_toml(tmp_path / "a.toml")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "loop", "pipe"):
        with pytest.raises(FormatError, match="not a regular file"):
            read_toml(tmp_path / name)
    with pytest.raises(MissingFileError, match="there is no config file"):
        read_toml(tmp_path / "none")


def test_a_value_that_is_no_toml_is_a_word() -> None:
    digits, deep = "9" * 5000, "[" * 5000
    assert read_assignments([f"seed={digits}", f"hidden={deep}"]) == {
        "seed": digits,
        "hidden": deep,
    }
