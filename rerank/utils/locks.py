"""File locks, so that processes make a shared file or folder only once."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from rerank.utils.errors import UserError
from rerank.utils.files import remove_leftovers
from rerank.utils.progress import log


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Holds the lock of `what` in `folder`, which is created if needed; logs once if another process has the lock.

    Leftovers of killed processes in `folder` are removed. Raises UserError if the folder cannot be written to.
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
    """Whether another process or thread holds the lock."""
    try:
        with FileLock(folder / f"{what}.lock").acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # there is no such folder, or it cannot be written to
        return False


def make_once(path: Path, what: str, make: Callable[[], object]) -> None:
    """Calls `make` to create `path`, unless it exists; other processes wait, and `path` is never replaced."""
    if not path.exists():
        with locked(path.parent, what):
            if not path.exists():
                make()
