"""The same runs on a CUDA device; `make test-gpu` runs these alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastgcn import Run, evaluate, fit, predict
from tests.communities import communities, quick

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precompute": False},
        {"distribution": "optimal"},
        {"hidden": (8, 8), "dropout": 0.2},
        {"batch_size": 1_000, "skip": True},  # one batch an epoch
        {"features": "host", "input_skip": True},
        {"features": "host", "distribution": "optimal", "precompute": False},
        {"inputs_dtype": "bfloat16"},
        {"inputs_dtype": "float16", "products": "float32"},
        {"hidden": 512},
        {"hidden": 2_048, "epochs": 5},  # more than one tile: by autograd
    ],
)
def test_training_on_the_device_learns_what_the_cpu_learns(changes: dict[str, Any]) -> None:
    graph = communities()
    config = quick(**({"epochs": 30, "batch_size": 32} | changes))
    there = fit(graph, config.replace(device="cuda"))
    here = fit(graph, config.replace(device="cpu"))
    assert there.metrics["device"].startswith("cuda")
    assert next(there.model.parameters()).is_cuda
    # Draws are other ones, of the same law.
    assert abs(there.metrics["val_micro_f1"] - here.metrics["val_micro_f1"]) < 0.15


def test_a_model_of_the_device_predicts_on_the_cpu(tmp_path: Path) -> None:
    graph = communities()
    config = quick(epochs=5, batch_size=32, device="cuda")
    run = fit(graph, config, run_dir=tmp_path / "run")
    again = Run.load(tmp_path / "run")
    assert not next(again.model.parameters()).is_cuda
    np.testing.assert_allclose(predict(again, graph), predict(run, graph), rtol=1e-4, atol=1e-5)
    assert evaluate(run, graph, "test").n_nodes == len(graph.split.test)
