"""Training over many processes: each rank owns a range of nodes and their rows of Â and ÂX.

This module says whether torchrun started the process. It imports nothing heavy, so that a
command can ask before it loads torch.
"""

import os

DEFAULT_TIMEOUT = 300.0  # seconds that a process waits for another


def launched() -> bool:
    """Whether torchrun, or anything that sets its variables, has started this process."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def has_agent() -> bool:
    """Whether torchrun's agent keeps a store for the processes, however often it starts them."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
