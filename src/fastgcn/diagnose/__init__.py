"""How large the error of sampling is on a graph, and how many samples a target error needs.

`fastgcn train` imports `diagnose.auto` for `samples = "auto"`. The names below are therefore
imported on first use, and with them what training does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastgcn.diagnose.auto import Choice, choose_samples, resolve_samples
    from fastgcn.diagnose.diagnosis import Diagnosis, diagnose

_HOME = {
    "Choice": "fastgcn.diagnose.auto",
    "choose_samples": "fastgcn.diagnose.auto",
    "resolve_samples": "fastgcn.diagnose.auto",
    "Diagnosis": "fastgcn.diagnose.diagnosis",
    "diagnose": "fastgcn.diagnose.diagnosis",
}

__all__ = [
    "Choice",
    "Diagnosis",
    "choose_samples",
    "diagnose",
    "resolve_samples",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
