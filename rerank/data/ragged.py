"""A store of documents' values, such as tokens or vectors: written once, in bounded memory, and memory-mapped.

A folder has `values.bin` (the values of all documents), `offsets.npy` (where the values of each document begin),
`numbers.npy` (one more number of each document), the table of the ids, and `files.json` (sizes and hashes of these
files). After a kill, the same command continues where it was; the finished files are the same, byte for byte.
"""

import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from rerank.data.arrow import Texts, from_numpy
from rerank.utils import integrity
from rerank.utils.errors import UserError
from rerank.utils.locks import make_once

ITEMS_AT_ONCE = 2**20
VALUES, OFFSETS, NUMBERS = "values.bin", "offsets.npy", "numbers.npy"
IDS, ID_OFFSETS, ID_HASHES, ID_ROWS = "ids.bin", "id_offsets.npy", "id_hashes.npy", "id_rows.npy"
SIZES = "sizes.bin"  # int64 of each document: its values, the bytes of its id, its number; removed at the end


def map_bytes(path: Path, kind: Any) -> np.ndarray:
    """The numbers of a file without a header, memory-mapped."""
    if not path.stat().st_size:  # nothing can be mapped of an empty file
        return np.zeros(0, kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))


def write_array(path: Path, array: np.ndarray) -> integrity.Facts:
    """Writes a .npy file, a part at a time, and returns its size and hash."""
    with integrity.RecordedFile(path) as file:  # numpy.save does not notice if a full disk refuses the last bytes
        np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        return file.facts()


def release(array: np.ndarray | None) -> None:
    """Frees the memory of what was read of a memory-mapped array; it is read again when it is needed."""
    held: Any = array
    while isinstance(held, np.ndarray | memoryview):
        held = held.base if isinstance(held, np.ndarray) else held.obj
    if isinstance(held, mmap.mmap):
        held.madvise(mmap.MADV_DONTNEED)


def slices_of(items: int) -> Iterator[slice]:
    """Slices by which an array of any size is read in bounded memory."""
    return (slice(first, min(first + ITEMS_AT_ONCE, items)) for first in range(0, items, ITEMS_AT_ONCE))


class RepeatedIdError(ValueError):
    """An id that occurs twice, and the row where it occurs the second time."""


@dataclass(frozen=True, eq=False)
class IdTable(Mapping[str, int]):
    """Maps ids to rows 0, 1, 2, ... as a dict does, in 24 bytes an id beside the ids themselves.

    ids: the id of each row; hashes: (ids,) uint64, sorted; rows: (ids,) int64, the row of each hash, and rows of equal
    hashes in their order. An id is found by binary search.
    """

    ids: pa.LargeStringArray
    hashes: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, doc_id: str) -> int:
        found, hashes = _hash(doc_id), self.hashes.data  # a view gives items faster than an array
        for place in range(bisect_left(hashes, found), len(hashes)):
            if hashes[place] != found:
                break
            if self.id_of(row := int(self.rows[place])) == doc_id:
                return row
        raise KeyError(doc_id)

    def __iter__(self) -> Iterator[str]:
        return iter(Texts(self.ids))

    def id_of(self, row: int) -> str:
        return str(self.ids[row])

    def ids_of(self, rows: np.ndarray) -> list[str]:
        """The ids of some rows: many are found sooner together."""
        return list(self.ids.take(from_numpy(rows)).to_pylist())


def make_id_table(ids: pa.LargeStringArray) -> IdTable:
    """The table of these ids. Raises RepeatedIdError for the first repeated id."""
    hashes = np.fromiter(map(_hash, Texts(ids)), np.uint64, len(ids))
    rows = np.argsort(hashes, kind="stable")
    hashes = hashes[rows]
    table = IdTable(ids, hashes, rows)
    for row in np.sort(rows[1:][hashes[1:] == hashes[:-1]]).tolist():
        if table[table.id_of(row)] != row:
            raise RepeatedIdError(f"{table.id_of(row)!r} occurs a second time", row)
    return table


def _hash(doc_id: str) -> int:
    return xxh3_64_intdigest(doc_id.encode(errors="surrogatepass"))


class Ragged(NamedTuple):
    """Values of documents: row i has `values[offsets[i]:offsets[i + 1]]`, `numbers[i]` and the id `ids.id_of(i)`.

    offsets: (documents + 1,) int64; numbers: (documents,) int64. Values of several dimensions are flat here: offsets
    count along the first one. All are memory-mapped.
    """

    values: np.ndarray
    offsets: np.ndarray
    numbers: np.ndarray
    ids: IdTable


@dataclass(frozen=True)
class RaggedWriter:
    """Appends documents to a store; `unfinished` counts those that are finished, by an interrupted command too."""

    unfinished: integrity.Unfinished
    kind: Any

    def add(self, doc_id: str, values: np.ndarray | Sequence[int], number: int = 0) -> None:
        """Adds a document with its values, (values, ...) of the store's type, and any other whole number."""
        name, files = doc_id.encode(), self.unfinished.files
        files[VALUES].write(np.asarray(values, self.kind).tobytes())
        files[IDS].write(name)
        files[SIZES].write(struct.pack("=qqq", len(values), len(name), number))


def open_ragged(folder: Path, what: str, kind: Any, fill: Callable[[RaggedWriter], None]) -> Ragged:
    """Opens the store in `folder`, whose name identifies its content, and makes it first if it does not exist.

    The values are called `what` and are of the type `kind`. `fill` adds the documents behind the first
    `writer.unfinished.done`, and counts them there. Raises RepeatedIdError for an id that occurs twice, and UserError
    if the store is damaged, or the disk is full, after which the same call goes on where this one was.
    """
    make_once(folder, what, lambda: _write(folder, kind, fill))
    return read_ragged(folder, what, kind)


def read_ragged(folder: Path, what: str, kind: Any) -> Ragged:
    """Opens an existing store; raises UserError if a file is missing or differs from its record."""
    if changed := integrity.changes_since_record(folder):
        raise UserError(f"{folder}: the {what} cannot be read ({'; '.join(changed)}); remove the folder and run again")
    offsets, numbers, id_offsets, hashes, rows = (
        np.asarray(np.load(folder / name, mmap_mode="r")) for name in (OFFSETS, NUMBERS, ID_OFFSETS, ID_HASHES, ID_ROWS)
    )
    ids = IdTable(_texts(map_bytes(folder / IDS, np.uint8), id_offsets), hashes, rows)
    return Ragged(map_bytes(folder / VALUES, kind), offsets, numbers, ids)


def _write(folder: Path, kind: Any, fill: Callable[[RaggedWriter], None]) -> None:
    with integrity.resumable(folder, (VALUES, IDS, SIZES), folder.name) as unfinished:
        fill(RaggedWriter(unfinished, kind))
        unfinished.save()
        record = {name: unfinished.files[name].facts() for name in (VALUES, IDS)}
        integrity.write_record(unfinished.folder, record | _write_arrays(unfinished.folder))
    os.replace(unfinished.folder, folder)
    (folder / integrity.STATE).unlink()
    (folder / SIZES).unlink()


def _write_arrays(folder: Path) -> integrity.Record:
    sizes = map_bytes(folder / SIZES, np.int64).reshape(-1, 3)
    offsets, id_offsets = np.zeros((2, len(sizes) + 1), np.int64)
    np.cumsum(sizes[:, 0], out=offsets[1:])
    np.cumsum(sizes[:, 1], out=id_offsets[1:])
    ids = make_id_table(_texts(map_bytes(folder / IDS, np.uint8), id_offsets))
    arrays = {OFFSETS: offsets, NUMBERS: sizes[:, 2], ID_OFFSETS: id_offsets, ID_HASHES: ids.hashes, ID_ROWS: ids.rows}
    return {name: write_array(folder / name, array) for name, array in arrays.items()}


def _texts(text: np.ndarray, offsets: np.ndarray) -> pa.LargeStringArray:
    """The texts `text[offsets[i]:offsets[i + 1]]`, UTF-8 in uint8, as an array that copies nothing."""
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))
