"""Whether fastgcn works on this machine: versions, devices, threads, folders, and a trial run."""

import importlib
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fastgcn._version import __version__
from fastgcn.errors import FastGCNError

# Libraries that every command may need, and those of the extras.
_NEEDED = (
    "numpy", "scipy", "numba", "torch", "scikit-learn", "pyarrow", "safetensors", "rich", "pooch",
    "jinja2", "vl-convert-python",
)  # fmt: skip
_EXTRAS = (
    "torch_geometric", "tensorboard", "networkx", "duckdb", "pandas", "polars", "triton", "optuna",
    "fastapi", "uvicorn", "prometheus-client", "onnx", "onnxruntime", "mlflow", "wandb",
)  # fmt: skip
_MODULES = {"scikit-learn": "sklearn", "vl-convert-python": "vl_convert"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried.

    Attributes:
        name: what was tried.
        ok: True if it works.
        found: one sentence on what came of it.
        fix: one sentence on what to do; empty if it works.
    """

    name: str
    ok: bool
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """What `examine` found: facts by heading, and checks."""

    facts: dict[str, dict[str, str]]
    checks: list[Check]

    @property
    def broken(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    def as_data(self) -> dict[str, Any]:
        return {
            "ok": not self.broken,
            **{title.lower(): facts for title, facts in self.facts.items()},
            "checks": [asdict(check) for check in self.checks],
        }


def examine() -> Examination:
    """Look at the installation and try what a first training needs; nothing raises."""
    libraries = _libraries()
    checks = [libraries]
    facts = {"Versions": _versions()}
    if libraries.ok:
        facts |= {"Devices": _devices(), "Threads": _threads()}
    facts["Folders"] = _folders()
    checks.append(_tried("cache folder", _write_to_cache, "set FASTGCN_CACHE to such a folder"))
    if libraries.ok:
        checks += [
            _tried("kernels", _kernels, "set NUMBA_CACHE_DIR to a folder that you can write to"),
            *_gpu(),
            _tried("pictures", _picture, "reinstall vl-convert-python"),
        ]
    return Examination(facts, checks)


def _tried(name: str, work: Callable[[], str], fix: str) -> Check:
    """The check that `work` succeeds; it returns a sentence."""
    try:
        return Check(name, True, work())
    except FastGCNError as error:
        return Check(name, False, str(error), fix)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        return Check(name, False, f"{type(error).__name__}: {reason}", fix)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _versions() -> dict[str, str]:
    own = {"fastgcn": __version__, "Python": platform.python_version(), "system": _system()}
    needed = {package: _version(package) for package in _NEEDED}
    extras = {package: _version(package) for package in _EXTRAS}
    found = {name: version for name, version in extras.items() if version != "not installed"}
    missing = ", ".join(name for name in extras if name not in found)
    return own | needed | found | ({"optional, not installed": missing} if missing else {})


def _system() -> str:
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def _libraries() -> Check:
    """Every library can be loaded."""
    for package in _NEEDED:
        try:
            importlib.import_module(_MODULES.get(package, package))
        except Exception as error:  # a broken extension module may raise anything
            reason = " ".join(str(error).split())[:300]
            fix = f"reinstall it: pip install --force-reinstall {package}"
            return Check("libraries", False, f"{package} cannot be loaded: {reason}", fix)
    return Check("libraries", True, "all can be loaded")


def _devices() -> dict[str, str]:
    import torch

    from fastgcn.memory import available_memory, shown_bytes

    facts = {"CPU": f"{platform.machine()}, {shown_bytes(available_memory())} of memory free"}
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        about = torch.cuda.get_device_properties(number)
        facts[f"cuda:{number}"] = f"{about.name}, {shown_bytes(about.total_memory)}"
    if len(facts) == 1:
        built = "is built for the CPU only" if torch.version.cuda is None else "finds none"
        facts["GPU"] = f"none: torch {torch.__version__} {built}"
    return facts


def _threads() -> dict[str, str]:
    import torch

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = {
        "cores of this process": f"{allowed} of {os.cpu_count()}",
        "threads of torch": str(torch.get_num_threads()),
    }
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        if name in os.environ:
            facts[name] = os.environ[name]
    return facts


def _folders() -> dict[str, str]:
    from fastgcn.data.registry import cache_folder

    facts = {"downloaded and generated data": str(cache_folder())}
    facts["FASTGCN_DATA"] = os.environ.get("FASTGCN_DATA") or "not set"
    try:
        from fastgcn.kernels.step import adam_update

        facts["compiled kernels"] = str(adam_update.stats.cache_path)
    except Exception as error:  # numba finds no folder that it may write to
        facts["compiled kernels"] = f"none: {error}"
    return facts | {"temporary files": tempfile.gettempdir()}


def _write_to_cache() -> str:
    """The folder of downloaded data, or the one that it will be made in, can be written to."""
    from fastgcn.data.registry import cache_folder, data_folder

    data_folder()  # refuses a FASTGCN_DATA that is no folder
    place = cache_folder()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    with tempfile.TemporaryFile(dir=there) as file:
        file.write(b"fastgcn")
    return f"{there} can be written to"


def _kernels(device: str = "cpu") -> str:
    """Train two small networks, whole and sampled, so that their kernels are compiled and kept."""
    import math

    from fastgcn.config import TrainConfig
    from fastgcn.data.load import load
    from fastgcn.kernels.compiling import take_seconds
    from fastgcn.train.loop import fit

    graph = load("digits")
    take_seconds()
    spent = 0.0
    for preset in ("fast", "paper"):
        run = fit(graph, TrainConfig(preset=preset, epochs=1, device=device))
        spent += run.metrics.get("compiling_seconds", 0.0)
        if not math.isfinite(run.metrics["val_loss"]):
            raise FastGCNError("a trial run has a loss that is not finite")
    if spent > 0:
        return f"compiled in {spent:.1f} s and kept; two trial runs are right"
    return "loaded from disk; two trial runs are right"


def _gpu() -> list[Check]:
    import torch

    if not torch.cuda.is_available():
        return []
    fix = "update the driver, or train with --device cpu"
    return [_tried("training on the GPU", lambda: _kernels("cuda"), fix)]


def _picture() -> str:
    from fastgcn.report.plots import Series, lines

    line = Series("a", [1, 2], [1, 2])
    lines([line], title="Trial", description="A line.", x_label="x", y_label="y")
    return "can be drawn"
