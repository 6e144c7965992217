"""Space on a disk for files that are too large for memory."""

import os
from pathlib import Path
from typing import IO

from fastgcn.data.store import reserve
from fastgcn.errors import InputError
from fastgcn.memory import shown_bytes


def make_room(file: IO[bytes], n_bytes: int, folder: Path, what: str) -> None:
    """`reserve`, but a disk that is full is answered in one sentence, and nothing is kept on it."""
    try:
        reserve(file, n_bytes)
    except OSError as error:
        file.truncate(0)
        raise InputError(
            f"{folder} has no room for {shown_bytes(n_bytes)} of {what} "
            f"({os.strerror(error.errno or 0)}); free some there, or allow more --memory"
        ) from None
