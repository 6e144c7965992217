"""`fastgcn` as a rank that is killed in its first life and stops answering in its second.

`python -m torch.distributed.run ... -m tests.backends.ranks.victim train ...`
"""

import os
import signal
from typing import Any

import fastgcn.train.loop
from fastgcn.cli import main
from fastgcn.train.training import Training

KILLED_AFTER, STOPPED_AFTER = 3, 5  # epochs


def perilous(epoch: Any) -> Any:
    """`Training.epoch` with what befalls rank 1."""

    def run(training: Training) -> Any:
        life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        done = len(training.history)
        if os.environ["RANK"] == "1":
            if life == 0 and done == KILLED_AFTER:
                os.kill(os.getpid(), signal.SIGKILL)
            if life == 1 and done == STOPPED_AFTER:
                print(f"rank 1 is process {os.getpid()}", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)
        return epoch(training)

    return run


if __name__ == "__main__":
    fastgcn.train.loop._CHECKPOINT_EVERY = 0.0  # each epoch, so that there is always one
    Training.epoch = perilous(Training.epoch)  # type: ignore[method-assign]
    main()
