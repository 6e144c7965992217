"""Replace files and folders so that a kill or a power cut leaves the old or the new one, whole.

The new one is written beside the old one as `.NAME.partial`, flushed to the disk and renamed. A
file takes the place of the old file in one step. A folder cannot: the old one is renamed to
`.NAME.replaced`, the new one takes its place, and only then is the old one deleted. If a kill
comes between the two renames, the next command that looks for the folder puts the old one back
(`recover`). The next command that writes there removes what a kill has left.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from fastgcn.errors import BusyError, InputError, WriteError
from fastgcn.locks import Lock, is_at, locked, take_descriptor
from fastgcn.progress import note

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ELSEWHERE = "free some space or choose another place; nothing was left behind"


def write_bytes(path: Path, data: bytes, *, durable: bool = True, remedy: str = _ELSEWHERE) -> None:
    replace_file(path, lambda temporary: temporary.write_bytes(data), durable, remedy)


def write_text(path: Path, text: str, *, durable: bool = True, remedy: str = _ELSEWHERE) -> None:
    write_bytes(path, text.encode(), durable=durable, remedy=remedy)


def replace_file(
    path: Path,
    write: Callable[[Path], object],
    durable: bool = True,
    remedy: str = _ELSEWHERE,
) -> None:
    """Let `write` make a file beside `path`, then rename it to `path`.

    With `durable`, a power cut leaves the old file or the new one, too. Without, it may leave a
    damaged one: for files with checksums, which can be made again. `remedy` is what to do when
    the disk is full.
    """
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file to write, such as {path / 'FILE'}")
    # Always the same name, so that the next write replaces a file that a kill left behind.
    temporary = path.with_name(f".{path.name}.partial")
    with explained(path, remedy), _claimed(temporary, path):
        try:
            write(temporary)
            if durable:
                sync(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync(path.parent)


@contextlib.contextmanager
def _claimed(temporary: Path, path: Path) -> Iterator[None]:
    """Have a file under this name to write to, as the only process."""
    descriptor = None
    while descriptor is None:
        opened = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not take_descriptor(opened):
                raise BusyError(f"{path} is being written by another process; wait until it ends")
            if is_at(opened, temporary):  # else another process has just renamed it
                descriptor = opened
                if os.fstat(opened).st_size:
                    _say_removed(path)
        finally:
            if descriptor is None:
                os.close(opened)
    try:
        yield
    finally:
        os.close(descriptor)


def _say_removed(path: Path) -> None:
    note(f"Removed what an interrupted command had left of {path.name}")


@contextlib.contextmanager
def explained(path: Path, remedy: str = _ELSEWHERE) -> Iterator[None]:
    """Turn the error of a full disk into a sentence that names what could not be written."""
    try:
        yield
    except OSError as error:
        explanation = _explanation(error, path, remedy)
        if explanation is None:
            raise
        raise explanation from error


def _explanation(error: BaseException | None, path: Path, remedy: str) -> WriteError | None:
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return None
    return WriteError(f"could not write {path}: {os.strerror(error.errno)}; {remedy}")


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some file systems cannot flush a folder
            raise
    finally:
        os.close(descriptor)


class FolderWriter:
    """Writes a folder under a temporary name; `place` renames it. Use as a context manager.

    One process at a time writes a folder. Nothing is left behind if writing fails. With `force`,
    an existing folder is replaced if it is empty or `replaceable`; `what` names this kind of
    folder in messages. The old folder is whole until the new one is in its place.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        force: bool,
        what: str,
        replaceable: Callable[[Path], bool],
    ) -> None:
        self.out = Path(out)
        target = self.out.resolve()
        if not target.name:
            raise InputError(f"{self.out} cannot be replaced; choose another folder")
        self._names = _Names(target)
        self.folder = self._names.partial
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InputError(
                f"{self.out} cannot be a folder: {target.parent} or a folder above it is a file"
            ) from None
        self._lock = Lock(self._names.lock)
        self._lock.take(str(self.out))
        try:
            self._names.clear()
            if self.out.exists() and not force:
                raise InputError(
                    f"{self.out} exists already; choose another folder, or replace it "
                    "(--force, or force=True in Python)"
                )
            empty = self.out.is_dir() and not any(self.out.iterdir())
            if self.out.exists() and not empty and not replaceable(self.out):
                raise InputError(f"{self.out} is not {what} and will not be overwritten")
            self.folder.mkdir()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._names.clear(say=False)
        finally:
            self._lock.release()
        explanation = _explanation(error, self.out, _ELSEWHERE)
        if explanation is not None:
            raise explanation from error

    def place(self) -> None:
        """Flush the folder to the disk and put it in its final place."""
        for folder, _, files in os.walk(self.folder):
            for file in files:
                sync(Path(folder, file))
            sync(Path(folder))
        target = self._names.target
        if target.exists():
            target.rename(self._names.replaced)
        self.folder.rename(target)
        sync(target.parent)


class _Names:
    """The names that a folder has while it is replaced, and what a kill leaves under them."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.partial, self.replaced, self.lock = (
            target.with_name(f".{target.name}.{kind}") for kind in ("partial", "replaced", "lock")
        )

    def clear(self, *, say: bool = True) -> None:
        """Put the old folder back if the new one is not in its place; remove everything else.

        Only for the process that has the lock.
        """
        left = self.partial.exists()
        if left:
            shutil.rmtree(self.partial, ignore_errors=True)
        if self.replaced.exists():
            if self.restore(say=say):
                return
            # Half deleted, it must not be taken for the old folder.
            left = True
            self.replaced.rename(self.partial)
            shutil.rmtree(self.partial, ignore_errors=True)
        if left and say:
            _say_removed(self.target)

    def restore(self, *, say: bool = True) -> bool:
        """Put the old folder back if no folder is in its place."""
        if self.target.exists() or not self.replaced.exists():
            return False
        self.replaced.rename(self.target)
        sync(self.target.parent)
        if say:
            note(f"Restored {self.target}, which an interrupted command was about to replace")
        return True


def recover(path: Path) -> None:
    """If a kill has left no folder at `path`, put the old one back that was being replaced."""
    if path.exists() or not path.name:
        return
    try:
        names = _Names(path.resolve())
    except (RuntimeError, OSError):  # a loop of links
        return
    if not names.replaced.exists():
        return
    # A process that has the lock is about to put the new folder there.
    with contextlib.suppress(BusyError, OSError), locked(names.lock, str(path)):
        names.restore()
