"""The figures of the code base: how large it is, who imports whom, and how much of it one run uses.

    python -m benchmarks structure [--no-trace] [--json]

Imports are read from the source, those inside functions included and those for type
checkers not. The layers are the ones of the import-linter contract in pyproject.toml. What a run
uses is traced: a process trains on Cora for a few epochs and records every function of ours that
is called, compiled kernels included.
"""

import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import networkx as nx

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "fastgcn"
PACKAGE = "fastgcn"

TARGETS = {
    "src files": 120,
    "src lines": 20_000,
    "benchmarks files": 30,
    "benchmarks lines": 4_000,
    "import depth": 12,
    "forward imports": 0,
    "import cycles": 0,
    "class names used twice": 0,
    "modules named like Python's": 0,
    "train cora: files": 45,
    "default step: files": 10,
}

# The steps of an epoch are what runs while a function of one of these names does.
_STEPS = ("train_on", "train_epoch")
_EPOCHS = 3  # of which the last is traced for its steps

Imports = Mapping[str, Iterable[str]]  # of each module, those that it imports
Import = tuple[str, str]  # importer, imported


def size(folder: Path) -> tuple[int, int]:
    """Python files under a folder, and their lines."""
    files = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    return len(files), sum(len(text.splitlines()) for text in files)


def repeated_classes(folder: Path) -> list[str]:
    """Names of classes that are defined in more than one place."""
    names = Counter(
        node.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def like_pythons(folder: Path) -> list[str]:
    """Modules whose own name is that of a module of the standard library."""
    modules = (p.relative_to(folder).with_suffix("") for p in folder.rglob("*.py"))
    return sorted(str(m) for m in modules if m.name in sys.stdlib_module_names)


def read_imports(folder: Path = SOURCE) -> dict[str, set[str]]:
    """Who imports whom in the package of a folder, by the names of modules."""
    modules = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path

    def imported(tree: ast.AST) -> Iterator[str]:
        for node in _run_statements(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                # A name is a module of its own, or something that the module holds.
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                yield from (name if name in modules else str(node.module) for name in names)

    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    return {name: {*imported(tree)} & {*modules} - {name} for name, tree in trees.items()}


def _run_statements(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree, without those that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _run_statements(child)


def components(imports: Imports) -> list[list[str]]:
    """Modules that import each other in a circle together, importers before what they import."""
    graph = nx.DiGraph(imports)
    condensed = nx.condensation(graph)
    return [sorted(condensed.nodes[n]["members"]) for n in nx.topological_sort(condensed)]


def longest_chain(imports: Imports) -> list[str]:
    """The longest chain of modules, each importing the next; a cycle counts with all its modules.

    >>> longest_chain({"a": ["b", "c"], "b": ["c"], "c": [], "d": ["c"]})
    ['a', 'b', 'c']
    """
    groups = nx.condensation(nx.DiGraph(imports))
    for _, imported, edge in groups.edges(data=True):
        edge["weight"] = len(groups.nodes[imported]["members"])
    # The first group of a chain counts too: every group follows a start that is none.
    for group in list(groups):
        groups.add_edge("start", group, weight=len(groups.nodes[group]["members"]))
    chain = nx.dag_longest_path(groups)[1:]
    return [module for group in chain for module in sorted(groups.nodes[group]["members"])]


def layers() -> list[list[str]]:
    """The layers from the top, as the contract in pyproject.toml declares them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (declared,) = (c["layers"] for c in contracts if c["type"] == "layers")
    return [[name.strip() for name in layer.split(":")] for layer in declared]


def forward_imports(imports: Imports, ordered: Sequence[Sequence[str]]) -> list[Import]:
    """Imports from a lower layer of a higher one, and of the package's own front door.

    >>> forward_imports({"fastgcn.a.x": ["fastgcn.b"], "fastgcn.b": []}, [["b"], ["a"]])
    [('fastgcn.a.x', 'fastgcn.b')]
    """
    height = {name: -number for number, layer in enumerate(ordered) for name in layer}

    def of(module: str) -> int | None:
        return height.get(module.partition(".")[2].partition(".")[0])

    found = []
    for importer in sorted(imports):
        for imported in sorted(imports[importer]):
            mine, theirs = of(importer), of(imported)
            if imported == PACKAGE or (mine is not None and theirs is not None and theirs > mine):
                found.append((importer, imported))
    return found


class Tracer:
    """Records the files of ours whose functions are called, in all threads, and during steps."""

    def __init__(self, source: Path) -> None:
        self._source = f"{source}{os.sep}"
        self._depth = 0  # of calls whose name is in _STEPS
        self.files: dict[str, set[str]] = {"run": set(), "step": set()}

    def start(self) -> None:
        _watch_kernels(self._record)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event in ("call", "return") and code.co_filename.startswith(self._source):
            if code.co_name in _STEPS:
                if event == "call" and not self._depth:
                    self.files["step"].clear()  # the last epoch counts, in which all is warm
                self._depth += 1 if event == "call" else -1
            self._record(code)

    def _record(self, code: CodeType) -> None:
        # Neither the body of a module nor that of a class.
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(self._source):
            for part in ("run", "step") if self._depth else ("run",):
                self.files[part].add(code.co_filename.removeprefix(self._source))


def _watch_kernels(record: Callable[[CodeType], None]) -> None:
    """Have compiled functions tell when they are called from Python, which profilers do not see."""
    from numba.core import dispatcher

    kind: Any = dispatcher.Dispatcher
    call = kind.__call__

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        record(self.py_func.__code__)
        return call(self, *args, **kwargs)

    kind.__call__ = watched


def _trace_here(out: Path) -> None:
    """Train on Cora as the command does, and write what was called."""
    tracer = Tracer(SOURCE)
    tracer.start()
    from fastgcn.cli import main

    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["fastgcn", "train", "cora", "--epochs", str(_EPOCHS)]
        sys.argv += ["--run-dir", f"{folder}/run", "--device", "cpu"]
        try:
            main()
        except SystemExit as done:
            if done.code not in (0, None):
                raise
    tracer.stop()
    out.write_text(
        json.dumps({part: sorted(files) for part, files in tracer.files.items()}), encoding="utf-8"
    )


def trace_training() -> dict[str, list[str]]:
    """What `fastgcn train cora` and the steps of one of its epochs call, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "trace.json"
        path = os.pathsep.join([str(SOURCE.parent), str(ROOT), os.environ.get("PYTHONPATH", "")])
        subprocess.run(
            [sys.executable, "-m", "benchmarks.structure", str(out)],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return dict(json.loads(out.read_text(encoding="utf-8")))


def measure(*, trace: bool = True) -> dict[str, Any]:
    """All figures, and the names behind them."""
    imports = read_imports()
    forward = forward_imports(imports, layers())
    details = {
        "import depth": longest_chain(imports),
        "forward imports": [f"{importer} -> {imported}" for importer, imported in forward],
        "import cycles": [" ".join(group) for group in components(imports) if len(group) > 1],
        "class names used twice": repeated_classes(SOURCE),
        "modules named like Python's": like_pythons(SOURCE),
    }
    figures: dict[str, int] = {}
    for name in ("src", "benchmarks"):
        figures[f"{name} files"], figures[f"{name} lines"] = size(ROOT / name)
    figures |= {name: len(found) for name, found in details.items()}
    if trace:
        for part, files in trace_training().items():
            title = "train cora: files" if part == "run" else "default step: files"
            figures[title], details[title] = len(files), files
    return {"figures": figures, "details": details}


def as_rows(figures: Mapping[str, int]) -> list[tuple[str, str, str, str]]:
    """Rows of a table: the figure, its value, its target and whether it is met."""
    rows = []
    for name, value in figures.items():
        target = TARGETS.get(name)
        met = "" if target is None else "yes" if value <= target else "no"
        rows.append((name, f"{value:,}", "" if target is None else f"{target:,}", met))
    return rows


if __name__ == "__main__":
    _trace_here(Path(sys.argv[1]))
