"""The threads of BLAS and torch: limits hold in whichever thread they are set."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch import Tensor

from fastgcn.backends.base import score
from fastgcn.machine import begin_thread, one_thread, thread_count
from fastgcn.model import GCN
from fastgcn.network import Network


def _of_blas() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def _limited() -> set[int]:
    with one_thread(True):
        return _of_blas()


def test_a_limit_holds_in_any_thread_while_another_has_set_its_own() -> None:
    before = _of_blas()
    with thread_count(2):
        assert _of_blas() == {2}
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(_limited).result() == {1}
        with ThreadPoolExecutor(1, initializer=begin_thread, initargs=(1,)) as pool:
            assert pool.submit(_of_blas).result() == {1}
    assert _of_blas() == before

    def elsewhere() -> set[int]:
        with thread_count(2):
            return _of_blas()

    with thread_count(1), ThreadPoolExecutor(1) as pool:
        assert pool.submit(elsewhere).result() == {2}
        assert _of_blas() == {1}


def test_few_outputs_are_scored_on_one_thread_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = GCN([3, 4])
    seen = []
    whole = Network.predictions

    def predictions(self: Network, outputs: Tensor) -> Tensor:
        seen.append(torch.get_num_threads())
        return whole(self, outputs)

    monkeypatch.setattr(Network, "predictions", predictions)
    logits, labels = torch.zeros(50, 4), np.zeros(50, np.int64)
    with thread_count(2):
        score(model, logits, labels)
        assert torch.get_num_threads() == 2
        monkeypatch.setattr("fastgcn.backends.base._FEW", 0)
        score(model, logits, labels)
    assert seen == [1, 2]
