"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets that `FASTGCN_DATA` points at; skips where there is none."""
    folder = os.environ.get("FASTGCN_DATA")
    if not folder or not (Path(folder) / "planetoid").is_dir():
        pytest.skip("set FASTGCN_DATA to a folder with planetoid/ to run tests on real data")
    return Path(folder)
