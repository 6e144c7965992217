"""Training and inference wholly on a CUDA device: graph, draws, blocks, steps and scores."""

from importlib.util import find_spec

from fastgcn.config import TrainConfig


def why_not(config: TrainConfig) -> str | None:
    """What of these settings cannot be recorded, and so is done step by step; None: nothing."""
    if find_spec("triton") is None:
        return "there is no Triton here"
    for name, value, known in (
        ("method", config.method, ("fastgcn",)),
        ("draws", config.draws, ("independent", "stratified", "systematic")),
        ("norm", config.norm, ("none", "layer")),
        ("history", config.history, (False,)),
        ("neighbors_only", config.neighbors_only, (False,)),
    ):
        if value not in known:
            return f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
    return None
