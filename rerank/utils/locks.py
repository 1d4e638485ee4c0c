"""File locks: processes make what they share once."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from rerank.utils.errors import UserError
from rerank.utils.files import remove_leftovers
from rerank.utils.progress import log


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
    """Whether another process, or another thread, is in `locked`."""
    try:
        with FileLock(folder / f"{what}.lock").acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # there is no such folder, or it cannot be written to
        return False


def make_once(path: Path, what: str, make: Callable[[], object]) -> None:
    """Calls `make`, which makes `path`, in one process while others wait, unless it exists: it is never replaced."""
    if not path.exists():
        with locked(path.parent, what):
            if not path.exists():
                make()
