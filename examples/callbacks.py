"""Watch a training: stop it, keep weights, log its numbers, and write a callback of your own.

python examples/callbacks.py     needs pip install 'fastgcn[tensorboard]'
"""

from pathlib import Path

import fastgcn


class Slowest(fastgcn.Callback):
    """The epoch that took the longest."""

    def start(self, training, earlier) -> None:
        print(f"training with {training.config.method}, after {len(earlier)} earlier epochs")
        self.seconds, self.epoch = 0.0, 0

    def __call__(self, record) -> None:
        if record["seconds"] > self.seconds:
            self.seconds, self.epoch = record["seconds"], record["epoch"]

    def end(self, run) -> None:
        ended = "interrupted" if run is None else "finished"
        print(f"{ended}; the slowest epoch was {self.epoch}, {1000 * self.seconds:.1f} ms")


def good_enough(record) -> bool:
    """A plain function is a callback too; True ends the run."""
    return record.get("val_micro_f1", 0) > 0.995


graph = fastgcn.load("digits")
run = fastgcn.fit(
    graph,
    epochs=15,
    callbacks=[
        Slowest(),
        good_enough,
        fastgcn.EarlyStop("train_loss", patience=5, min_delta=0.001),
        fastgcn.KeepWeights("weights", every=5, last=2),
        fastgcn.TensorBoardLogger("logs"),  # MLflowLogger() and WandbLogger() are used alike
    ],
)
print(run)
print(sorted(path.name for path in Path("weights").iterdir()))
print("next: tensorboard --logdir logs")
