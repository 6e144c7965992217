"""All figures of speed on a CUDA device by name."""

from benchmarks.speed.device.hub import measure_hub, show_hub
from benchmarks.speed.device.products import measure_device_products, show_device_products
from benchmarks.speed.device.step import (
    measure_device_epoch,
    measure_device_step,
    show_device_epoch,
    show_device_steps,
)
from benchmarks.speed.device.training import (
    measure_device_accuracy,
    measure_device_large,
    measure_device_training,
    show_device_accuracy,
    show_device_large,
    show_device_training,
)
from benchmarks.speed.effort import Effort
from benchmarks.speed.figures import Figure, Part

_SIZES = [[256, 400], [512, 800], [1024, 2048], [2048, 4096], [4096, 4096]]


def _step(effort: Effort) -> list[Part]:
    sizes = [(256, 400), (1024, 2048)] if not effort.stand_ins else [(64, 50)]
    return [
        Part(
            f"{batch}, {t}",
            measure_device_step,
            {"data": effort.large, "batch_size": batch, "samples": t, "rounds": effort.rounds},
        )
        for batch, t in sizes
    ]


def _hub(effort: Effort) -> list[Part]:
    hub = 100_000 if not effort.stand_ins else 1_000
    settings = {"nodes": 2 * hub, "degree": 50, "hub": hub, "rounds": effort.rounds}
    return [Part("hub", measure_hub, settings)]


def _epoch(effort: Effort) -> list[Part]:
    sizes = _SIZES if not effort.stand_ins else [[64, 50], [128, 100]]
    settings = {"data": effort.large, "sizes": sizes, "rounds": effort.rounds}
    return [Part(effort.large, measure_device_epoch, settings)]


def _training(effort: Effort) -> list[Part]:
    settings = {"data": effort.large, "rounds": 2 * effort.long_rounds - 1}
    return [Part(effort.large, measure_device_training, settings)]


def _products(effort: Effort) -> list[Part]:
    settings = {"data": effort.large, "rounds": effort.rounds}
    return [Part(effort.large, measure_device_products, settings)]


def _large(effort: Effort) -> list[Part]:
    data = "products-sim" if not effort.stand_ins else effort.large
    return [Part(data, measure_device_large, {"data": data, "epochs": 5})]


def _accuracy(effort: Effort) -> list[Part]:
    # All epochs of the large graph would take the CPU an hour; a few are as good there.
    epochs = {"pubmed": effort.epochs, effort.large: 5}
    if effort.stand_ins:
        epochs.pop("pubmed")
    seeds = 5 if not effort.stand_ins else 2
    return [
        Part(d, measure_device_accuracy, {"data": d, "seeds": seeds, "epochs": most})
        for d, most in epochs.items()
    ]


DEVICE_FIGURES = (
    Figure("step", "A training step", _step, show_device_steps),
    Figure("hub", "Hubs", _hub, show_hub),
    Figure("epoch", "An epoch", _epoch, show_device_epoch),
    Figure("training", "To the best model", _training, show_device_training),
    Figure("products", "ÂX and full inference", _products, show_device_products),
    Figure("large", "Millions of nodes", _large, show_device_large),
    Figure("accuracy", "The same scores", _accuracy, show_device_accuracy),
)
