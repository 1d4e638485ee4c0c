"""Claims of an experiment's folder: which settings it has is decided once, whatever commands run side by side."""

import contextlib
import fcntl
import os
import weakref
from collections.abc import Callable

from rerank.runs.layout import ExperimentFolder
from rerank.utils.errors import UserError
from rerank.utils.locks import locked


class Claim:
    """A command's use of an experiment's folder, until it is released or the process ends."""

    def __init__(self, lock: int) -> None:
        self._close = weakref.finalize(self, os.close, lock)

    def release(self) -> None:
        """Ends the use; a second call does nothing."""
        self._close()


def claim(folder: ExperimentFolder, settle: Callable[[bool], object]) -> Claim:
    """Calls `settle(in_use)`, one command at a time, and then holds the folder in use.

    `in_use` tells whether another command is at work in the folder, or has trained there: then `settle` raises
    UserError for other settings, instead of replacing those of the folder. The commands at work share a lock (flock),
    so that the settings of one that was killed before its first epoch may be replaced.
    """
    with locked(folder.path, "settings"):
        try:
            lock = os.open(folder.claims, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(f"{folder.claims}: cannot be written: {error.strerror}") from error
        claimed = Claim(lock)
        try:
            settle(_is_held(lock) or folder.begun)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_SH)
        except BaseException:
            claimed.release()
            raise
    return claimed


def _is_held(lock: int) -> bool:
    """Whether another command holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    return False
