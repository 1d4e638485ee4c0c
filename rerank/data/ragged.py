"""A store of documents' values, such as tokens or vectors: written once, in bounded memory, and memory-mapped.

A folder has `values.bin` (the values of all documents), `offsets.npy` (where the values of each document begin),
`numbers.npy` (one more number of each document), the table of the ids, and `files.json` (sizes and hashes of these
files). After a kill, the same command continues where it was; the finished files are the same, byte for byte.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rerank.data.arrays import map_bytes, write_array
from rerank.data.id_table import IdTable, make_id_table
from rerank.utils.errors import UserError
from rerank.utils.integrity import RECORD, Record, changes_since_record, write_record
from rerank.utils.locks import make_once
from rerank.utils.resumable import Unfinished, put_in_place, resumable

VALUES, OFFSETS, NUMBERS = "values.bin", "offsets.npy", "numbers.npy"
IDS, ID_OFFSETS, ID_HASHES, ID_ROWS = "ids.bin", "id_offsets.npy", "id_hashes.npy", "id_rows.npy"
SIZES = "sizes.bin"
"""Three int64 of each document: its values, the bytes of its id, its number. Removed when the store is whole."""


class Ragged(NamedTuple):
    """Values of documents: row i has `values[offsets[i]:offsets[i + 1]]`, `numbers[i]` and the id `ids.id_of(i)`.

    offsets: (documents + 1,) int64; numbers: (documents,) int64. Values of several dimensions are flat here: offsets
    count along the first one. All arrays are memory-mapped.
    """

    values: np.ndarray
    offsets: np.ndarray
    numbers: np.ndarray
    ids: IdTable


class RaggedWriter:
    """Appends documents to a store.

    `done` is the number of documents that are finished, by an interrupted command too; `facts` is what else to keep of
    them until the store is whole, as JSON.
    """

    def __init__(self, unfinished: Unfinished, kind: Any) -> None:
        self._unfinished, self._kind = unfinished, kind
        self.facts = unfinished.facts

    @property
    def done(self) -> int:
        """Documents that are finished."""
        return self._unfinished.done

    def add(self, doc_id: str, values: np.ndarray | tuple[()], number: int = 0) -> None:
        """Adds a document with its values, (values, ...) of the store's type, and any other whole number."""
        name, files = doc_id.encode(), self._unfinished.files
        if len(values):
            files[VALUES].write(np.asarray(values, self._kind).tobytes())
        files[IDS].write(name)
        files[SIZES].write(struct.pack("=qqq", len(values), len(name), number))

    def finish(self, documents: int = 1) -> None:
        """Counts documents whose values are added, or that have none; a kill from now on loses seconds of work."""
        self._unfinished.finish_item(documents)


def open_ragged(folder: Path, what: str, kind: Any, fill: Callable[[RaggedWriter], None]) -> Ragged:
    """Opens the store in `folder`, and makes it first if it does not exist.

    Args:
        folder: its name identifies the documents and what makes their values.
        what: what the values are, for messages and for the name of the lock.
        kind: the type of the values.
        fill: adds the documents behind the first `writer.done`.

    Raises:
        UserError: the store is damaged, or the disk is full, after which the same call goes on where this one was.
        RepeatedIdError: an id occurs twice.
    """
    make_once(folder, what, lambda: _write(folder, kind, fill))
    return read_ragged(folder, what, kind)


def read_ragged(folder: Path, what: str, kind: Any) -> Ragged:
    """Opens an existing store; raises UserError if a file is missing or differs from its record."""
    changed = changes_since_record(folder) if (folder / RECORD).exists() else [f"{RECORD}: expected a file, found none"]
    if changed:
        raise UserError(f"{folder}: the {what} cannot be read ({'; '.join(changed)}); remove the folder and run again")
    offsets, numbers, id_offsets, hashes, rows = (
        np.asarray(np.load(folder / name, mmap_mode="r")) for name in (OFFSETS, NUMBERS, ID_OFFSETS, ID_HASHES, ID_ROWS)
    )
    ids = IdTable(map_bytes(folder / IDS, np.uint8), id_offsets, hashes, rows)
    return Ragged(map_bytes(folder / VALUES, kind), offsets, numbers, ids)


def _write(folder: Path, kind: Any, fill: Callable[[RaggedWriter], None]) -> None:
    with resumable(folder, (VALUES, IDS, SIZES), folder.name) as unfinished:
        fill(RaggedWriter(unfinished, kind))
        unfinished.save()
        record = {name: unfinished.files[name].facts() for name in (VALUES, IDS)}
        write_record(unfinished.folder, record | _write_arrays(unfinished.folder))
    put_in_place(unfinished.folder, folder)
    (folder / SIZES).unlink()


def _write_arrays(folder: Path) -> Record:
    sizes = map_bytes(folder / SIZES, np.int64).reshape(-1, 3)
    offsets, id_offsets = np.zeros((2, len(sizes) + 1), np.int64)
    np.cumsum(sizes[:, 0], out=offsets[1:])
    np.cumsum(sizes[:, 1], out=id_offsets[1:])
    ids = make_id_table(map_bytes(folder / IDS, np.uint8), id_offsets)
    arrays = {OFFSETS: offsets, NUMBERS: sizes[:, 2], ID_OFFSETS: id_offsets, ID_HASHES: ids.hashes, ID_ROWS: ids.rows}
    return {name: write_array(folder / name, array) for name, array in arrays.items()}
