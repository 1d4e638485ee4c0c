"""File locks: processes make what they share once, and temporary folders of dead processes are told by their lock."""

import contextlib
import fcntl
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from rerank.utils.errors import UserError
from rerank.utils.progress import log

LOCK, NEW, OLD = "lock", "new", "old"
NAME = re.compile(r"\..+\.[0-9a-f]{16}\.part")
SHOWN = 50  # characters of the target's name in that of its temporary folder: a file name has at most 255 bytes
A_DAY = 24 * 3600.0


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


@contextlib.contextmanager
def temporary_place(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, which is removed after the block: NEW in it takes the place of `target`, then OLD.

    It has a random name, since a container that is started again has the same process ids, and a file that this process
    locks (flock) as long as it lives. Leftovers of dead processes in the folder of `target` are removed first.
    """
    remove_leftovers(target.parent)
    folder = target.with_name(f".{target.name[:SHOWN]}.{secrets.token_hex(8)}.part")
    try:
        lock = _claim(folder)
        try:
            os.write(lock, f"{_machine()}\n{target.name}".encode(errors="surrogateescape"))
            yield folder
        finally:
            _clear(folder, target)
            os.close(lock)
    except KeyboardInterrupt:  # also one that came while the folder was made, or removed
        _clear(folder, target)
        raise


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary folders of dead processes in `folder`.

    If a process died between moving a folder away and putting the new one in its place, the old one is put back. A
    temporary folder of another machine is removed when it is a day old: the locks of some network file systems are seen
    by one machine alone.
    """
    with contextlib.suppress(OSError):  # as for a folder that may be written but not listed
        for path in list(folder.iterdir()):
            if NAME.fullmatch(path.name):
                with contextlib.suppress(OSError):  # it is in use, or it cannot be removed: it is in nobody's way
                    _remove_if_dead(path)


def remove(path: Path) -> None:
    """Removes a file, a folder or a symbolic link, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _claim(folder: Path) -> int:
    """Makes the temporary folder, and locks the file in it, which is returned open."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # another process has taken the empty folder for a leftover
            continue
        with contextlib.suppress(OSError):  # a file system without locks: nothing there is ever taken for dead
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_current(lock, folder / LOCK):
            return lock
        os.close(lock)


def _is_current(lock: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`: another process may have removed it before it was locked."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), path.stat())
    return False


def _remove_if_dead(folder: Path) -> None:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:  # its process has died before it made the lock, or is about to make it: see `_claim`
        folder.rmdir()
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its process lives, or another one removes it
        if _is_current(lock, folder / LOCK):
            # Both are empty if its process has died before it wrote them.
            machine, _, name = os.read(lock, 4096).decode(errors="surrogateescape").partition("\n")
            if machine in ("", _machine()) or time.time() - os.fstat(lock).st_mtime > A_DAY:
                _clear(folder, folder.with_name(Path(name).name or folder.name))
    finally:
        os.close(lock)


def _clear(folder: Path, target: Path) -> None:
    """Puts the old folder back if the new one is not in its place yet, and removes the rest, the lock last."""
    new, old = folder / NEW, folder / OLD
    with contextlib.suppress(OSError):  # what stays is a leftover, which the next process clears
        if old.exists() and new.exists() and not os.path.lexists(target):
            os.replace(old, target)
        remove(new)
        remove(old)
        shutil.rmtree(folder)


def _machine() -> str:
    """What all processes of this machine share, those in containers too."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text(encoding="ascii").strip() if boot.is_file() else platform.node()
