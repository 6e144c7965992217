"""Train in two processes, each with its part of the nodes.

python examples/torchrun.py     starts itself under torchrun
"""

import os
import subprocess
import sys

import fastgcn
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.backends.ranks.shard import Shard


def train() -> None:
    """What each process does."""
    group = ProcessGroup.join()  # the processes that torchrun has started
    shard = Shard.of_graph(fastgcn.load("digits"), group)
    run = fastgcn.fit(shard.graph, shard=shard, epochs=3, run_dir="run", threads=1)
    scores = fastgcn.evaluate(run, shard, "test")  # of the nodes of both, the same on each
    if group.is_main:
        print(f"{group.size} processes: test micro-F1 {scores.micro_f1:.3f}", flush=True)
    group.close()


if "RANK" in os.environ:
    train()
else:
    launch = ["-m", "torch.distributed.run", "--rdzv-backend", "loopback"]
    subprocess.run([sys.executable, *launch, "--nproc-per-node", "2", __file__], check=True)
    print("The run that the first process wrote:", fastgcn.Run.load("run"))
