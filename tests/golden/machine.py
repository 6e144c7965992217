"""What bits depend on beside the code: the processor, and the libraries that compute."""

import platform
import sys
from importlib.metadata import version
from pathlib import Path

import scipy.linalg.cython_blas  # noqa: F401  (each library's BLAS is loaded before it is asked for)
import threadpoolctl
import torch

_LIBRARIES = ("torch", "numpy", "scipy", "numba", "llvmlite", "scikit-learn")
_FLAGS = ("avx", "fma", "f16c", "amx", "sse4", "asimd", "sve")


def fingerprint() -> dict[str, str]:
    """Equal where the same program gives the same bits."""
    facts = {
        "machine": platform.machine(),
        "system": sys.platform,
        "python": ".".join(map(str, sys.version_info[:2])),
        "torch uses": torch.backends.cpu.get_cpu_capability(),
        **{name: version(name) for name in _LIBRARIES},
        **_processor(),
    }
    blas = {
        f"{pool['internal_api']} {pool.get('version')} {pool.get('architecture')}"
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    }
    return facts | {"blas": ", ".join(sorted(blas))}


def _processor() -> dict[str, str]:
    """Its kind and what it can do, where Linux says."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {"processor": platform.processor()}
    lines = (line.partition(":") for line in path.read_text().split("\n\n")[0].splitlines())
    said = {key.strip(): value.strip() for key, _, value in lines}
    flags = said.get("flags", said.get("Features", "")).split()
    return {
        "processor": " ".join(said.get(k, "") for k in ("vendor_id", "cpu family", "model")),
        "flags": " ".join(sorted(flag for flag in flags if flag.startswith(_FLAGS))),
    }
