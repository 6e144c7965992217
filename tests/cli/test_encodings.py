"""Text files are UTF-8 whatever the locale says: a program that writes them so reads them so."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastgcn
from fastgcn import fit, save
from tests.communities import communities, quick

SOURCE = Path(fastgcn.__file__).parent

# Calls by name that open text, unless a mode with a "b" among the arguments says otherwise.
_OPENS = ("open", "read_text", "write_text")


def without_encoding(code: str) -> Iterator[int]:
    """Lines that open a text file in the locale's encoding."""
    own = {node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        of = getattr(getattr(node.func, "value", None), "id", "")
        ours = isinstance(node.func, ast.Name) and name == "write_text"  # of `replace_file`
        if name not in _OPENS or ours or name in own or of in ("os", "gzip", "RunFolder"):
            continue
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        modes = [word for word in words if isinstance(word, str) and len(word) <= 3]
        if name == "open" and (any("b" in mode for mode in modes) or (node.args and not modes)):
            continue  # bytes, or no file's `open`: the first argument is a mode
        if not any(keyword.arg == "encoding" for keyword in node.keywords):
            yield node.lineno


def test_what_is_found() -> None:
    assert list(without_encoding("path.read_text()")) == [1]
    assert list(without_encoding("path.open()")) == [1]
    assert list(without_encoding("path.open('a')")) == [1]
    assert list(without_encoding("path.write_text(text)")) == [1]
    assert list(without_encoding("path.open('rb')\npath.read_text(encoding='utf-8')")) == []


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_every_text_file_is_opened_with_its_encoding(path: Path) -> None:
    assert list(without_encoding(path.read_text(encoding="utf-8"))) == []


def test_names_in_any_script_under_the_plainest_locale(tmp_path: Path) -> None:
    n = 60
    graph = communities(
        node_ids=[f"Zürich-{i}" for i in range(n)], class_names=["猫", "犬", "ñ"], name="größe"
    )
    save(graph, tmp_path / "store")
    # The name is one of those that go into the run's config.json.
    fit(graph.with_source({"data": str(tmp_path / "größe")}), quick(), run_dir=tmp_path / "run")
    (tmp_path / "ids").write_text("Zürich-3\n", encoding="utf-8")
    (tmp_path / "settings.toml").write_text("# für später\nepochs = 1\n", encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in (
        ["info", "store"],
        ["predict", "run", "store", "--nodes", "@ids", "--out", "p.csv"],
        ["train", "store", "--config", "settings.toml", "--samples", "9", "--run-dir", "again"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "fastgcn", *command],
            cwd=tmp_path,
            env=os.environ | plain,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
