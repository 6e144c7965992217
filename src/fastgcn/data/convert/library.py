"""Libraries that are needed for one conversion only."""

from importlib import import_module
from typing import Any

from fastgcn.errors import MissingDependencyError


def library(module: str, *, extra: str) -> Any:
    """The imported `module`, which `pip install fastgcn[extra]` brings.

    >>> library("no_such_library", extra="pyg")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fastgcn.errors.MissingDependencyError: this needs no_such_library, which could not ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"this needs {module.partition('.')[0]}, which could not be imported ({error}); "
            f"install it with `pip install 'fastgcn[{extra}]'`"
        ) from error
