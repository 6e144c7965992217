"""Files are replaced whole: a reader, or a kill, meets the old one or the new one."""

from collections.abc import Callable
from pathlib import Path

from fastgcn.errors import InputError


def write_bytes(path: Path, data: bytes) -> None:
    replace_file(path, lambda temporary: temporary.write_bytes(data))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make the file beside its place, then rename it into it."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file to write, such as {path / 'FILE'}")
    # Always the same name, so that what a kill leaves behind goes with the next write.
    temporary = path.with_name(f".{path.name}.partial")
    try:
        write(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
