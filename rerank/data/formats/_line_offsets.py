"""Where the line of each document begins in a file of documents: in memory, or on disk for a large file."""

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from rerank.data.arrays import map_bytes, release
from rerank.data.id_table import (
    IdTable,
    RepeatedIdError,
    make_id_table,
    read_id_table,
    smallest,
    table_of_arrays,
    write_id_table,
)
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash
from rerank.utils.integrity import RECORD, changes_since_record, write_record
from rerank.utils.locks import make_once
from rerank.utils.progress import log
from rerank.utils.resumable import put_in_place, resumable
from rerank.utils.temporary import remove
from rerank.utils.user_cache import user_cache

LARGE = 2**26
"""Bytes of a file whose table is kept on disk: at least a second is needed to make it."""

BLOCK = 2**20
NAMES, PLACES = "names.bin", "places.bin"
"""The ids in the order of the file, put together; two int64 of each: the end of its name, and where its line begins."""

Lines = Callable[[int, int], Iterator[tuple[str, int]]]
"""`lines(last, before)` gives the ids and the first bytes of the lines behind the one that begins at `last`, which is
the last of `before` lines with a document; of all lines if `before` is 0."""

Stamp = tuple[int, int]
"""What changes when a file does: its size in bytes and its time of change in nanoseconds."""


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def is_large(path: Path) -> bool:
    """Whether the table of this file is kept on disk."""
    return path.stat().st_size >= LARGE


def line_offsets(path: Path, keys: Iterable[str], lines: Lines) -> IdTable:
    """The first byte of each document's line; `keys` is what decides the ids beside the file.

    The table of a large file is in the folder `offsets` of the user's cache until the file changes, and making it goes
    on where a command was killed. Raises UserError for an id that occurs twice, and for a table that is damaged.
    """
    cache = user_cache("offsets")
    try:
        if not is_large(path):
            return make_id_table(lines(0, 0))
        if not _can_be_written(cache):
            log.info(f"{cache}: cannot be written, so each command looks for the documents in {path}")
            return make_id_table(lines(0, 0))
        name = short_hash(path.resolve(), *keys)
        folder = cache / f"{name}-{short_hash(*stamp_of(path))}"
        make_once(folder, "offsets", lambda: _make(folder, lines, name))
    except RepeatedIdError as error:
        raise repeated(f"{path}:{line_number(path, error.number)}", error.doc_id) from None
    return _read(folder, path)


def repeated(where: str, doc_id: str) -> UserError:
    """The error of a document that occurs twice."""
    return UserError(f"{where}: the document {doc_id} occurs a second time; expected each id once")


def line_number(path: Path, offset: int) -> int:
    """The number of the line that begins at this byte."""
    number = 1
    with path.open("rb") as file:
        while offset > 0:
            block = file.read(min(offset, BLOCK))
            number += block.count(b"\n")
            offset -= len(block)
    return number


def _make(folder: Path, lines: Lines, name: str) -> None:
    with resumable(folder, (NAMES, PLACES), folder.name) as unfinished:
        names, places = (unfinished.files[file] for file in (NAMES, PLACES))
        for doc_id, offset in lines(unfinished.facts.get("last", 0), unfinished.done):
            names.write(doc_id.encode())
            places.write(struct.pack("=qq", names.size, offset))
            unfinished.facts["last"] = offset
            unfinished.finish_item()
        unfinished.save()
        given = map_bytes(unfinished.folder / PLACES, np.int64).reshape(-1, 2)
        offsets = smallest(np.concatenate([[0], given[:, 0]]))
        release(given)
        table = table_of_arrays(map_bytes(unfinished.folder / NAMES, np.uint8), offsets, given[:, 1])
        write_record(unfinished.folder, write_id_table(unfinished.folder, table))
    put_in_place(unfinished.folder, folder)
    for file in (NAMES, PLACES):
        (folder / file).unlink()
    for before in folder.parent.glob(f"{name}-*"):  # of the same file before it changed
        if before != folder:
            remove(before)


def _read(folder: Path, path: Path) -> IdTable:
    changed = changes_since_record(folder) if (folder / RECORD).exists() else [f"{RECORD}: expected a file, found none"]
    if not changed:
        try:
            return read_id_table(folder)
        except (OSError, ValueError) as error:
            changed = [str(error)]
    raise UserError(
        f"{folder}: the places of the documents of {path} are damaged ({changed[0]}); remove the folder and run again"
    )


def _can_be_written(cache: Path) -> bool:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(cache, os.W_OK)
