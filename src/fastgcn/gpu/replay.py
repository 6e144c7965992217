"""Work on a device, recorded once as a CUDA graph and played back."""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor


class Replay:
    """`work`, which always does the same to the same memory, without the cost of asking for it.

    `state` is what the work changes for good: recording tries the work out, and puts that back,
    as it does with `generators`. Where there is no CUDA, the work is simply done.
    """

    def __init__(
        self,
        work: Callable[[], None],
        device: torch.device,
        state: Sequence[Tensor],
        generators: Sequence[Generator] = (),
    ) -> None:
        self.play = work
        if device.type != "cuda":
            return
        seeds = [generator.get_state() for generator in generators]
        here = torch.cuda.current_stream(device)
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        try:
            with torch.cuda.stream(aside):
                try_out(work, state)
        finally:
            here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        for generator, seed in zip(generators, seeds, strict=True):
            generator.set_state(seed)
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            work()
        self.play = graph.replay


def try_out(work: Callable[[], None], state: Sequence[Tensor], times: int = 2) -> None:
    """Do the work so many times, each time from the same state, and leave that as it was.

    A second time from where the first had ended could be beyond the end of what there is to do.
    """
    saved = [part.clone() for part in state]
    for _ in range(times):
        work()
        for part, before in zip(state, saved, strict=True):
            part.copy_(before)
