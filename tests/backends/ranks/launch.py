"""Starting ranks for real: torchrun's launcher, in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def torchrun(ranks: int, *command: object, restarts: int = 0) -> list[str]:
    """The command line that starts so many ranks on this machine."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(ranks), "--max-restarts", str(restarts), *map(str, command),
    ]  # fmt: skip


def environment(**variables: str) -> dict[str, str]:
    """Ours, one thread a process, and our tests to be found."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths} | variables


def run_ranks(
    ranks: int, *command: object, restarts: int = 0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end, for five minutes at most: kernels may have to be compiled first."""
    return subprocess.run(
        torchrun(ranks, *command, restarts=restarts),
        env=environment(), cwd=cwd, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
