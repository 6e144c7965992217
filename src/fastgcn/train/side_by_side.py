"""Several trainings side by side: the candidates of a race, and the networks of an ensemble."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch

from fastgcn.machine import begin_thread, pool_threads, share_pool
from fastgcn.train.divergence import NotFiniteError
from fastgcn.train.training import Training


def train_side_by_side(
    running: Mapping[int, Training], epochs: int, advance: Callable[[int], None]
) -> dict[int, NotFiniteError]:
    """Train all up to so many epochs, on threads of their own as long as there are several; those
    whose numbers went wrong, and how."""
    stopped = threading.Event()
    failed: dict[int, NotFiniteError] = {}
    threads, left = pool_threads(), list(running)  # of `left`, the first ones train now

    def train(number: int) -> None:
        training = running[number]
        try:
            while training.has_more_epochs and not _ended(training, epochs):
                if stopped.is_set():
                    return
                if workers > 1:
                    beside = left[:workers]
                    share_pool(threads, beside.index(number), len(beside))
                training.epoch()
                advance(1)
        except NotFiniteError as wrong:
            failed[number] = wrong
        finally:
            left.remove(number)

    on_cpu = all(training.backend.device.type == "cpu" for training in running.values())
    workers = min(len(running), threads) if on_cpu else 1
    if workers == 1:
        for number in running:
            train(number)
        return failed
    with ThreadPoolExecutor(workers, "fastgcn-training", begin_thread, (1,)) as pool:
        try:
            for _ in pool.map(train, running):
                pass
        finally:
            stopped.set()
    torch.set_num_threads(torch.get_num_threads())  # what threads made from now on begin with
    return failed


def _ended(training: Training, epochs: int) -> bool:
    """True after a round of so many epochs; it ends with a validation."""
    history = training.history
    return len(history) >= epochs and "val_loss" in history[-1]
