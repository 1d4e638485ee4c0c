"""SHA-256 of large files, kept in the user's cache until the file changes: 22 GB take half a minute to read."""

import contextlib
import json
import time
from pathlib import Path
from typing import TypedDict

from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.json_files import parse_json
from rerank.utils.user_cache import user_cache

LARGE = 2**26
"""Bytes of a file whose hash is kept: a smaller one takes less than half a second."""
SETTLED = 2.0
"""Seconds after which another change of a file gives it another time, on any file system."""


class KeptHash(TypedDict):
    """The hash of a file, and its size and times, of which a change of the file changes one."""

    stamp: list[int]
    sha256: str


def kept_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, as `file_hash` computes it; that of a large file is kept.

    It is computed again when the size of the file changes, its time, or the time when the system last changed either.
    Raises OSError for a file that cannot be read.
    """
    status = path.stat()
    if status.st_size < LARGE:
        return file_hash(path)
    place = user_cache("hashes") / f"{short_hash(path.resolve())}.json"
    stamp = _stamp(path)
    with contextlib.suppress(OSError, ValueError):  # nothing is kept, or it is damaged
        kept: KeptHash = parse_json(place.read_bytes(), KeptHash)
        if kept["stamp"] == stamp:
            return kept["sha256"]
    settled = time.time() - max(status.st_mtime, status.st_ctime) > SETTLED
    digest = file_hash(path)
    if settled and _stamp(path) == stamp:
        with contextlib.suppress(UserError), atomic_write(place) as tmp:  # not kept: nothing is lost but time
            tmp.write_text(json.dumps(KeptHash(stamp=stamp, sha256=digest)), encoding="utf-8")
    return digest


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
