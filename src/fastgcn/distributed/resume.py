"""A checkpoint that the first rank has read, on all ranks."""

from typing import Any

import torch
from torch import Tensor

from fastgcn.distributed.world import World
from fastgcn.runs import Checkpoint

History = list[dict[str, Any]]


def share_checkpoint(
    world: World, checkpoint: Checkpoint | None, history: History
) -> tuple[Checkpoint | None, History]:
    """What the first rank is given; what the others are given does not count."""

    def described() -> dict[str, Any] | None:
        if checkpoint is None:
            return None
        shapes = {
            name: [str(t.dtype).removeprefix("torch."), list(t.shape)]
            for name, t in checkpoint.tensors.items()
        }
        return {"tensors": shapes, "progress": checkpoint.progress, "history": history}

    about = world.from_first("the checkpoint", described)
    if about is None:
        return None, history
    tensors = {} if checkpoint is None else checkpoint.tensors
    return (
        Checkpoint(
            {
                name: _from_first(world, tensors.get(name), getattr(torch, dtype), shape)
                for name, (dtype, shape) in about["tensors"].items()
            },
            about["progress"],
        ),
        about["history"],
    )


def _from_first(
    world: World, tensor: Tensor | None, dtype: torch.dtype, shape: list[int]
) -> Tensor:
    if world.first:
        assert tensor is not None
        whole = tensor.contiguous()
        world.host.exchange(dict.fromkeys(world.host.others, whole), {}, "the checkpoint")
        return whole
    whole = torch.empty(shape, dtype=dtype)
    world.host.exchange({}, {0: whole}, "the checkpoint")
    return whole
