"""File locks, so that concurrent processes build shared files only once."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from rerank.utils.errors import UserError
from rerank.utils.progress import log
from rerank.utils.temporary import remove_leftovers


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Holds the lock of `what` in `folder`, which is made; waits for another process that has it, and logs so once.

    What killed processes left half-written in `folder` is removed. Raises UserError if the folder cannot be written to.
    """
    lock = FileLock(folder / f"{what}.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            log.info(f"{folder}: waiting for another process, which makes the {what}")
            lock.acquire()
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from error
    try:
        remove_leftovers(folder)
        yield
    finally:
        lock.release()


def is_locked(folder: Path, what: str) -> bool:
    """Whether another process, or another thread, holds the lock of `what` in `folder`."""
    try:
        with FileLock(folder / f"{what}.lock").acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # there is no such folder, or it cannot be written to
        return False


def make_once(path: Path, what: str, make: Callable[[], object]) -> None:
    """Calls `make`, which makes `path`, unless it exists; of several processes, one makes it and the others wait.

    What is there is never replaced, so another process may have it open. The lock of `what` is in the folder of `path`.
    Raises UserError if that cannot be written to.
    """
    if not path.exists():
        with locked(path.parent, what):
            if not path.exists():
                make()
