"""Advisory locks: one process writes a run or a folder; readers take none and never wait.

A lock is `flock` on a small file, which the kernel releases when the process ends, also after
`kill -9`. Linux passes `flock` on to an NFS server as a byte-range lock, if the file is open for
writing, as it is here. `lockf` would be the same lock there. But a process loses a lock of
`lockf` when it closes any other descriptor of the file, and two threads can both have it.
On a file system without locks, nothing is locked.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from fastgcn.errors import BusyError
from fastgcn.progress import note

try:
    import fcntl
except ImportError:  # systems without it
    fcntl = None  # type: ignore[assignment]


class Lock:
    """A lock on the file `path`, which exists only while someone has the lock, or after a kill.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     first, second = (Lock(Path(folder, ".lock")) for _ in range(2))
    ...     first.take("the run")
    ...     try:
    ...         second.take("the run")
    ...     except BusyError as error:
    ...         print(str(error).partition(" by ")[0])
    ...     first.release()
    ...     second.take("the run")
    ...     second.release()
    the run is being written
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def take(self, what: str, *, wait: bool = False) -> None:
        """Take the lock. If another process has it, wait, or raise a `BusyError` that names it.

        `what` is what the lock is for, in words.
        """
        while self._descriptor is None:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if not take_descriptor(descriptor):
                    holder = _holder(descriptor)
                    if not wait:
                        raise BusyError(
                            f"{what} is being written by {holder}; wait until it has ended, or "
                            "stop it"
                        )
                    note(f"Waiting for {holder}, which writes {what}")
                    take_descriptor(descriptor, wait=True)
                # The holder before may have removed the file that was opened here.
                if is_at(descriptor, self.path):
                    self._descriptor = descriptor
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        about = {"pid": os.getpid(), "host": socket.gethostname()}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(about).encode(), 0)

    def release(self) -> None:
        """Remove the file and let the next one have the lock; nothing if it was not taken."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            if is_at(descriptor, self.path):
                self.path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Have the lock on `path` inside the block."""
    lock = Lock(path)
    lock.take(what, wait=wait)
    try:
        yield
    finally:
        lock.release()


def take_descriptor(descriptor: int, *, wait: bool = False) -> bool:
    """Lock an open file until it is closed; False if another process has the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def is_at(descriptor: int, path: Path) -> bool:
    """True if the open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    """The process that has the lock, in words."""
    try:
        about = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {int(about['pid'])} on {str(about['host'])[:100]}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"  # it has the lock, and has not written its number yet
