"""How much of a long list of cases a run of the tests takes: some, or with `make verify` all."""

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")

THOROUGH = "FASTGCN_VERIFY" in os.environ

# Tests that take half a minute.
slow = pytest.mark.skipif(not THOROUGH, reason="make verify runs it")


def some(cases: Iterable[T], *, every: int) -> list[T]:
    """Every k-th case from the first on; all of them with `make verify`."""
    return [*cases][:: 1 if THOROUGH else every]
