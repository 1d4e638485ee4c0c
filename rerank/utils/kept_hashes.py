"""SHA-256 of large files, kept beside them until they change: a file of 22 GB takes half a minute to read."""

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
    """The hash of a file, and what changes with its content."""

    bytes: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


def kept_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, as `file_hash` computes it; that of a large file is kept in `places_of` it.

    It is computed again when the size of the file changes, its time, or the time when the system last changed either.
    Raises OSError for a file that cannot be read.
    """
    status = path.stat()
    stamp = {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}
    if status.st_size < LARGE:
        return file_hash(path)
    for place in places_of(path):
        if (kept := _read(place)) and {key: kept.get(key) for key in stamp} == stamp:
            return kept["sha256"]
    settled = time.time() - max(status.st_mtime, status.st_ctime) > SETTLED
    digest = file_hash(path)
    after = path.stat()
    if settled and (after.st_size, after.st_mtime_ns, after.st_ctime_ns) == tuple(stamp.values()):
        _keep(path, json.dumps({**stamp, "sha256": digest}))
    return digest


def places_of(path: Path) -> tuple[Path, Path]:
    """Where the hash of a file is kept: beside it, or where its folder cannot be written, in the user's cache."""
    name = f"{path.name}.sha256.json"
    return path.with_name(name), user_cache("hashes") / f"{short_hash(path.resolve())}-{name}"


def _keep(path: Path, content: str) -> None:
    for place in places_of(path):
        try:
            with atomic_write(place) as tmp:
                tmp.write_text(content, encoding="utf-8")
            return
        except UserError:  # a folder that cannot be written, or a full disk: nothing is lost but time
            continue


def _read(place: Path) -> KeptHash | None:
    """What is kept there; None if there is nothing, or something else."""
    try:
        kept: KeptHash = parse_json(place.read_bytes(), KeptHash)
        return kept
    except (OSError, ValueError):
        return None
