"""Atomic writes of files and folders, and file hashes."""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rerank.utils.errors import UserError
from rerank.utils.progress import progress

BLOCK = 16 * 2**20
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR)


@contextlib.contextmanager
def atomic_write(target: str | Path) -> Iterator[Path]:
    """Yields a temporary path next to `target` to write a file or a folder at; it replaces `target` after the block.

    If the block fails, also by a full disk or an interrupt, `target` is unchanged and the temporary path is removed.
    Raises UserError if the path cannot be written to, the disk is full, or a file would replace a folder.
    """
    target = Path(target)
    tmp, old = (target.with_name(f".{target.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {target.parent}: {error.strerror}") from error
    try:
        yield tmp
        if target.is_dir():  # a folder cannot be renamed over a folder that is not empty
            if not tmp.is_dir():
                raise UserError(f"{target}: is a folder, expected the name of a file to write; the folder is kept")
            os.replace(target, old)
        os.replace(tmp, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            if old.exists() and not target.exists():
                os.replace(old, target)
            _remove(tmp)
        reason = _refusal(error)
        if reason is None:
            raise
        raise UserError(f"{target}: cannot be written: {reason}; what was there before is kept") from error
    _remove(old)


def _refusal(error: BaseException) -> str | None:
    """Why the disk refused the write; None for any other error."""
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return error.strerror
    if "os error 28" in str(error):  # safetensors writes files itself and has its own exception
        return os.strerror(errno.ENOSPC)
    return None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check_new_folder(out: Path) -> None:
    """Raises UserError if --out exists, unless it is an empty folder."""
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError(f"--out {out}: already exists; expected a new folder to write")


def short_hash(*parts: object) -> str:
    """16 hexadecimal digits that name a cache entry: the same parts, as text, give the same digits."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes; a large file shows a progress bar."""
    digest, blocks = hashlib.sha256(), -(-path.stat().st_size // BLOCK)
    with path.open("rb") as file:
        contents = iter(lambda: file.read(BLOCK), b"")
        for block in progress(contents, blocks, f"hashing {path.name}", show=blocks > 1):
            digest.update(block)
    return digest.hexdigest()
