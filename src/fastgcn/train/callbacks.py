"""Training curves for TensorBoard, an optional dependency."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from fastgcn.errors import InputError, MissingDependencyError


class TensorBoardLogger:
    """Writes each epoch's numbers as TensorBoard scalars; pass it to `fit` as one of `callbacks`.

    `train_loss` becomes the scalar `train/loss`, `val_micro_f1` becomes `val/micro_f1`; numbers
    of no part of the split keep their names. The step is the epoch. Logging to the same folder
    again hides its old records from the first new epoch on, so a resumed run shows one curve.

    >>> with TensorBoardLogger("logs") as log:                              # doctest: +SKIP
    ...     fastgcn.fit(graph, config, callbacks=[log])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; TensorBoard's events need a folder")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependencyError(
                "TensorBoard is not installed; pip install 'fastgcn[tensorboard]'"
            ) from error
        self._open: Any = SummaryWriter
        self._writer: Any = None

    def __call__(self, record: dict[str, Any]) -> None:
        """Write the record of one epoch."""
        step = record["epoch"]
        if self._writer is None:
            self._writer = self._open(str(self.folder), purge_step=step)
        for name, value in record.items():
            if name != "epoch":
                self._writer.add_scalar(_tag(name), value, step)

    def flush(self) -> None:
        """Make everything written so far visible to readers."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flush and close; a later record opens the folder again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> "TensorBoardLogger":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _tag(name: str) -> str:
    part, _, rest = name.partition("_")
    return f"{part}/{rest}" if part in ("train", "val") else name
