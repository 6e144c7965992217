"""The map holds: who may import whom, what is public, and that examples run."""

import ast
import doctest
import importlib
import os
import pkgutil
import re
from pathlib import Path

import pytest

import fastgcn

SOURCE = Path(fastgcn.__file__).parent
ROOT = SOURCE.parent.parent
MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages([str(SOURCE)], "fastgcn.")
    if not info.name.endswith("__main__")
)

# From the bottom up; a module may import its own floor and those below it, at the top of the
# file. Imports inside functions are how optional and upper parts are reached, and are not seen.
FLOORS: list[tuple[str, ...]] = [
    (
        "_version",
        "errors",
        "types",
        "mapped",
        "strict_json",
        "damage",
        "progress",
        "prefetch",
        "replace_file",
        "page",
        "memory",
    ),
    ("plots",),
    ("kernels", "csr", "checks", "field_checks"),
    ("graph",),
    ("adjacency", "node_sets"),
    ("rows", "features", "config", "metrics", "variance", "sparse_rows", "sparse_inputs"),
    ("data", "presets"),
    ("scratch", "filled_rows", "stored_rows", "memory_plan"),
    ("propagation", "induced", "disk_inputs", "samplers", "settings", "info", "testing"),
    ("models",),
    ("layerwise",),
    ("inference", "runs", "stopping", "new_nodes", "machine", "tensorboard", "output_tables"),
    ("training_data", "judge", "adam", "steps", "averaging", "validation_interval"),
    ("losses", "batches"),
    ("workshop",),
    ("distributed", "gpu"),
    ("diagnose",),
    ("train", "trainer"),
    ("estimator",),
    ("bench", "report"),
    ("paper",),
    ("cli", "__init__", "__main__"),
]
FLOOR = {name: number for number, floor in enumerate(FLOORS) for name in floor}


def top_level_imports(path: Path) -> set[str]:
    """Modules imported when the file is: not those for type checkers, nor inside functions."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_imports_point_downwards(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert here in FLOOR, f"{here} has no floor: put it into FLOORS"
    for name in top_level_imports(path):
        if name.startswith("fastgcn.") and name.split(".")[1] in FLOOR:
            there = name.split(".")[1]
            assert FLOOR[there] <= FLOOR[here], f"{here} imports {there}, which is above it"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_only_kernels_know_numba(path: Path) -> None:
    if "kernels" not in path.parts:
        assert not re.search(r"^\s*(import|from) (numba|triton)", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_the_readme_example_runs(
    real_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    monkeypatch.setenv("FASTGCN_DATA", str(real_data))
    scope: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert 0.8 < float(capsys.readouterr().out) < 1


def test_public_names_are_declared_once() -> None:
    assert fastgcn.__all__ == ["__version__", *fastgcn._HOME]
    assert len(set(fastgcn.__all__)) == len(fastgcn.__all__)


def test_docs_link_to_files_that_exist() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
