"""What an output may be, atomic writes of files and folders, file hashes, and the user's cache."""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rerank.utils.errors import UserError
from rerank.utils.json_files import parse_json
from rerank.utils.locks import LOCK, NEW, OLD, temporary_place
from rerank.utils.progress import progress

BLOCK = 2**24
LARGE = 2**26  # bytes of a file whose hash is kept: a smaller one takes less than half a second
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
REFUSALS = FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR}  # the user can help them
ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]|os error (\d+)\)")  # shutil and safetensors have their own exceptions


def _output_target(path: str | Path, flag: str = "") -> Path:
    """What a write to `path` replaces or makes: the file or folder itself, or the target of a symbolic link."""
    target = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
    if os.path.lexists(target) and not target.is_file() and not target.is_dir():
        kinds = "a FIFO, a socket, a device or a link to itself"
        raise UserError(f"{flag}{path}: is {kinds}; expected the name of a new or a regular file")
    return target


def check_output(path: str | Path, flag: str = "--out") -> None:
    """Raises UserError, before any work, if `path` is nothing that can be written as a file."""
    if _writable_target(path, flag).is_dir():
        raise UserError(f"{flag} {path}: is a folder, expected the name of a file to write")


def check_new_folder(out: Path, flag: str = "--out") -> None:
    """Raises UserError, before any work, if `out` is not a new or an empty folder, or cannot be written."""
    target = _writable_target(out, flag)
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise UserError(f"{flag} {out}: already exists; expected a new folder to write")


def _writable_target(path: str | Path, flag: str) -> Path:
    """The `_output_target`, after a trial of its folder, or of the folder in which that would be made."""
    target = _output_target(path, f"{flag} ")
    existing = next(parent for parent in target.absolute().parents if os.path.lexists(parent))
    try:
        with tempfile.TemporaryFile(dir=existing):
            return target
    except OSError as error:
        raise UserError(f"{flag} {path}: cannot be written: {existing}: {error.strerror}") from error


@contextlib.contextmanager
def atomic_write(target: str | Path) -> Iterator[Path]:
    """Yields a temporary path to write a file or a folder at; it replaces `target` after the block.

    A symbolic link stays, and its target is replaced. If the block fails, also by a full disk or an interrupt, `target`
    is unchanged and the temporary path is removed; so is what a killed process left beside `target`. Raises UserError
    if the path cannot be written to, the disk is full, a file would replace a folder, or `target` is a device, a FIFO
    or a socket. The umask decides who may read what was written, whatever wrote it.
    """
    path, target = Path(target), _output_target(target)
    with contextlib.ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(temporary_place(target))
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {target.parent}: {error.strerror}") from error
        stack.enter_context(refused_in_one_line(f"{path}: cannot be written", "; what was there before is kept"))
        yield (new := folder / NEW)
        for file in [new, *new.rglob("*")]:
            if file.is_file() and not file.is_symlink():  # safetensors writes files that nobody else may read
                file.chmod(stat.S_IMODE(file.stat().st_mode | (folder / LOCK).stat().st_mode))
        if target.is_dir():  # a folder cannot be renamed over a folder that is not empty
            if not new.is_dir():
                raise UserError(f"{path}: is a folder, expected the name of a file to write; the folder is kept")
            os.replace(target, folder / OLD)
        os.replace(new, target)


def write_text(target: str | Path, text: str) -> None:
    """Writes a text as UTF-8 by `atomic_write`, and raises as it does."""
    with atomic_write(target) as tmp:
        tmp.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def refused_in_one_line(what: str, end: str = "") -> Iterator[None]:
    """Turns the disk's refusal of a write in the block into a UserError: `what`, the reason, `end`."""
    try:
        yield
    except Exception as error:
        found = ERROR_NUMBER.search(str(error))
        number = int(found[1] or found[2]) if found else None
        if number not in REFUSALS:
            raise
        raise UserError(f"{what}: {os.strerror(number)}{end}") from error


def short_hash(*parts: object) -> str:
    """16 hexadecimal digits that name a cache entry: the same parts, as text, give the same digits."""
    return short_hash_of(parts)


def short_hash_of(parts: Iterable[object]) -> str:
    """`short_hash` of parts of which there may be millions: they are taken one after the other."""
    digest, between = hashlib.sha256(), ""
    for part in parts:
        digest.update(f"{between}{part}".encode())
        between = "\x1f"
    return digest.hexdigest()[:16]


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes; a large file shows a progress bar."""
    digest, blocks = hashlib.sha256(), -(-path.stat().st_size // BLOCK)
    with path.open("rb") as file:
        for block in progress(iter(lambda: file.read(BLOCK), b""), blocks, f"hashing {path.name}", show=blocks > 4):
            digest.update(block)
    return digest.hexdigest()


def kept_hash(path: Path) -> str:
    """As `file_hash`; that of a large file is kept in the user's cache, as 22 GB take half a minute to read.

    It is computed again when the size of the file changes, its time, or the time when the system last changed either.
    """
    status = path.stat()
    if status.st_size < LARGE:
        return file_hash(path)
    stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    place = user_cache("hashes") / f"{short_hash(path.resolve())}.json"
    with contextlib.suppress(OSError, ValueError):  # nothing is kept, or it is damaged
        kept_stamp, digest = parse_json(place.read_bytes(), tuple[list[int], str])
        if kept_stamp == stamp:
            return str(digest)
    digest = file_hash(path)
    with contextlib.suppress(UserError):  # not kept: nothing is lost but time
        write_text(place, json.dumps([stamp, digest]))
    return digest


def user_cache(name: str) -> Path:
    """A folder of the user's cache, for what is made from files whose own folder may be read-only."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rerank" / name
