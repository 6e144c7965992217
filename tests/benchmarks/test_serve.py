"""The load generator on a small graph: every answer right, faults answered as they must be."""

from pathlib import Path

import pytest
from benchmarks.serve import Case, faults, latency

from tests.thorough import THOROUGH


@pytest.mark.skipif(not THOROUGH, reason="a minute of load: make verify")
def test_a_service_under_load_and_faults(tmp_path: Path) -> None:
    case = Case.prepared(tmp_path, 2_000, 20_000)
    steady = latency(case, 3)
    assert (steady["requests"], steady["wrong"], steady["broken"]) == (300, 0, 0)
    found = faults(case, 30)
    assert (found["wrong"], found["broken_otherwise"]) == (0, 0)
    statuses = found["statuses"]
    assert statuses["reload 200"] >= 3
    assert statuses["broken 400"] > 5
    assert statuses["slow 408"] >= 1
