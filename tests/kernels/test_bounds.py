"""Kernels under numba's bounds checks, which `make test-bounds` switches on for many more tests."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import numpy as np
from fastgcn.kernels.blocks import number_columns
from fastgcn.kernels.rows import count_rows, cut_rows, rows_ascend

indptr, columns, both = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([1, 0])
place = np.full(2, -1, np.int32)
starts, cut, values = cut_rows(indptr, columns, None, both)
assert (starts.tolist(), cut.tolist(), values.tolist()) == ([0, 1, 3], [1, 0, 1], [1, 1, 1])
assert count_rows(indptr, columns, None, both, np.arange(2))[0].tolist() == [1, 2]
assert rows_ascend(indptr, columns, 2)
assert number_columns(both, columns, place)[0].tolist() == [1, 0]

damaged = np.array([0, 2, 9])
for kernel in (
    lambda: cut_rows(damaged, columns, None, both),
    lambda: count_rows(damaged, columns, None, both, np.arange(2)),
    lambda: cut_rows(indptr, columns + 5, None, both, position=np.arange(2), counts=both + 1),
    lambda: rows_ascend(damaged, columns, 2),
    lambda: number_columns(both, columns + 5, place),
    lambda: number_columns(np.array([0, 1, 0]), columns, place),
):
    try:
        kernel()
    except IndexError:
        print("noticed")
"""


def test_an_index_out_of_bounds_is_noticed(tmp_path: Path) -> None:
    # Compiled code is cached by its source, whether or not it checks bounds.
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | checked,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["noticed"] * 6
