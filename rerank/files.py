"""Files and folders that are written aside and renamed, so that nothing is ever half there; and their hashes."""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rerank.errors import UserError


@contextlib.contextmanager
def replacing(target: str | Path) -> Iterator[Path]:
    """Yields a path beside `target` to write a file or a folder at; it takes `target`'s place when the block ends well.

    When the block fails, a full disk and an interrupt included, `target` is as it was and nothing is left beside it.
    Raises UserError where the place cannot be written to or the disk is full.
    """
    target = Path(target)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        old = target.with_name(f".{target.name}.{os.getpid()}.old")
        if target.is_dir():  # a folder cannot be renamed over a folder that holds something
            os.replace(target, old)
        os.replace(aside, target)
        _remove(old)
    except OSError as error:
        _remove(aside)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR):
            raise UserError(f"{target}: cannot be written: {error.strerror}; what was there before is kept") from error
        raise
    except BaseException:
        _remove(aside)
        raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def short_hash(*parts: object) -> str:
    """16 hexadecimal digits that name a cache entry: the same parts, as text, give the same digits."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]
