"""SHA-256 of large files, kept in the user's cache until the file changes: 22 GB take half a minute to read."""

import contextlib
import json
from pathlib import Path

from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.json_files import parse_json
from rerank.utils.user_cache import user_cache

LARGE = 2**26
"""Bytes of a file whose hash is kept: a smaller one takes less than half a second."""


def kept_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, as `file_hash` computes it; that of a large file is kept.

    It is computed again when the size of the file changes, its time, or the time when the system last changed either.
    Raises OSError for a file that cannot be read.
    """
    stamp = _stamp(path)
    if stamp[0] < LARGE:
        return file_hash(path)
    place = user_cache("hashes") / f"{short_hash(path.resolve())}.json"
    with contextlib.suppress(OSError, ValueError):  # nothing is kept, or it is damaged
        kept_stamp, digest = parse_json(place.read_bytes(), tuple[list[int], str])
        if kept_stamp == stamp:
            return str(digest)
    digest = file_hash(path)
    if _stamp(path) == stamp:  # it was not changed meanwhile
        with contextlib.suppress(UserError), atomic_write(place) as tmp:  # not kept: nothing is lost but time
            tmp.write_text(json.dumps([stamp, digest]), encoding="utf-8")
    return digest


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
