"""One process at a time: runs side by side share what one of them makes."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from rerank.errors import UserError
from rerank.utils.progress import log


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Waits until no other process works on `what` in `folder`, and says so; the folder is made.

    Raises UserError where it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"{what}.lock").open("a")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info(f"{folder}: waiting for another process, which makes the {what}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
