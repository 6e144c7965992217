"""Fixtures shared by all tests."""

import os
import signal
from pathlib import Path

# Tests run several at once, and torch's threads on tiny matrices would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

# Without a GPU its kernels run on the CPU, one program after the other.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Tests send signals to themselves and to their children. Started in the background or by `nohup`,
# they and their children would ignore some.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Examples take what a busy machine gives them; a deadline would test the machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets that `FASTGCN_DATA` points at; skips where there is none."""
    folder = os.environ.get("FASTGCN_DATA")
    if not folder or not (Path(folder) / "planetoid").is_dir():
        pytest.skip("set FASTGCN_DATA to a folder with planetoid/ to run tests on real data")
    return Path(folder)
