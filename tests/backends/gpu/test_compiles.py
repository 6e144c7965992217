"""Kernels are not only right where they are interpreted: they compile for a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.thorough import slow

ROOT = Path(__file__).parents[3]

# Bytes of shared memory that a program may have on an H100 or H200.
MOST = 227 << 10

KERNELS = {
    "_draw_vertices", "_draw_entries", "_fold", "_clear", "_scan", "_number", "_mix_rows",
    "_unmix_rows", "_multiply", "_gather", "_adam", "_drop", "gather_rows", "activate",
    "activate_back", "add_sums", "mix_entries", "losses_back", "first_product", "first_gradient",
    "second_gradients",
}  # fmt: skip


@slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there they are compiled anyway")
def test_every_kernel_compiles_and_has_room(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    environment.pop("TRITON_INTERPRET")
    command = [sys.executable, "-m", "tests.backends.gpu.compile_kernels", "90"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == KERNELS
    assert max(found.values()) <= MOST
