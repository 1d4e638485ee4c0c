"""One store of arrays by id: appended item by item, memory-mapped, resumed after an interrupt, checked by hash.

A folder has `items.bin`, a row of int64 for each item (the ends of its id and arrays, and their hash), `ids.bin` (the
ids, UTF-8), and `<column>.bin` (the arrays of all items). The rows show which items are whole, so a writer resumes
after them. A finished store also has `index.bin`, the index of the ids, and `files.json`, the sizes and hashes of its
files.
"""

import contextlib
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from xxhash import xxh3_64_digest

from rerank.data.id_table import IdTable, id_at, make_id_table
from rerank.data.mapped import map_file
from rerank.utils.errors import UserError
from rerank.utils.files import refused_in_one_line, remove
from rerank.utils.integrity import RECORD, changes_since_record, write_record
from rerank.utils.locks import locked
from rerank.utils.progress import log

ITEMS = "items.bin"
"""The rows of int64 that describe the items."""
IDS = "ids.bin"
"""The ids of the items."""
INDEX = "index.bin"
"""The hashes of the ids, sorted, and their rows."""
SECONDS_BETWEEN_FLUSHES = 2.0  # work that is lost when the process is killed

Columns = Mapping[str, DTypeLike]
"""Name of a column -> type of its arrays."""


@dataclass(frozen=True, eq=False)
class Items:
    """The whole items of a store's folder, in the order of their addition, memory-mapped.

    values: column -> concatenated flat arrays of all items; bounds: (items + 1, columns + 2) int64, a row of zeros and
    then, for each item, the ends of its id and arrays and its hash; text: the concatenated ids, UTF-8.
    """

    values: dict[str, np.ndarray]
    bounds: np.ndarray
    text: np.ndarray

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def offsets(self, column: str) -> np.ndarray:
        """(items + 1,) int64: item i has `values[column][offsets[i]:offsets[i + 1]]`."""
        offsets: np.ndarray = self.bounds[:, 1 + list(self.values).index(column)]
        return offsets

    def array(self, column: str, row: int) -> np.ndarray:
        begin, end = self.offsets(column)[row : row + 2].tolist()
        return self.values[column][begin:end]

    def id_of(self, row: int) -> str:
        return id_at(self.text, self.bounds[:, 0], row).decode(errors="replace")  # it may be damaged

    def is_whole(self, row: int) -> bool:
        """Whether the id and the arrays of an item match their hash."""
        arrays = (self.array(column, row).tobytes() for column in self.values)
        whole: bool = _hash_of([id_at(self.text, self.bounds[:, 0], row), *arrays]) == self.bounds[row + 1, -1]
        return whole


@dataclass(frozen=True, eq=False)
class ArrayStore(Items):
    """A finished store: its items and the index of their ids."""

    ids: IdTable


class StoreWriter:
    """Appends items to the store in a folder, after its whole items; a context manager that closes its files.

    Only one process may write, so the caller holds a lock. `self.items` counts all items, including those of earlier
    processes. With `check`, all earlier items are compared with their hashes, and items are written again from the
    first damaged one on; without it, they are compared only if the last one is damaged.
    """

    def __init__(self, folder: Path, columns: Columns, check: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._columns = folder, columns
        self._kinds: list[np.dtype] = [np.dtype(kind) for kind in (np.uint8, *columns.values())]
        kept = map_items(folder, columns)
        first = 0 if check or (len(kept) and not kept.is_whole(len(kept) - 1)) else len(kept)
        self.items = next((row for row in range(first, len(kept)) if not kept.is_whole(row)), len(kept))
        self._ends = kept.bounds[self.items, :-1].tolist()
        self._row = struct.Struct(f"={len(self._ends) + 1}q")
        files = [folder / ITEMS, folder / IDS, *(file_of(folder, column) for column in columns)]
        sizes = [end * kind.itemsize for end, kind in zip(self._ends, self._kinds, strict=True)]
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(_open_to_append(file)) for file in files]
            for file, size in zip(opened[1:], sizes, strict=True):
                file.truncate(size)
            self._rows, *self._files = opened
            if not self.items:
                self._rows.truncate(0)
            self._rows.truncate((self.items + 1) * self._row.size)  # which extends an empty file by a row of zeros
            self._open = stack.pop_all()
        self._flushed = time.monotonic()

    def add(self, item_id: str, *arrays: ArrayLike) -> None:
        """Adds an item with one array for each column; the arrays are stored flat."""
        kinds = zip(arrays, self._kinds[1:], strict=True)
        contents = [item_id.encode(), *(np.asarray(array, kind).tobytes() for array, kind in kinds)]
        for place, (file, content, kind) in enumerate(zip(self._files, contents, self._kinds, strict=True)):
            file.write(content)
            self._ends[place] += len(content) // kind.itemsize
        self._rows.write(self._row.pack(*self._ends, _hash_of(contents)))
        self.items += 1
        if time.monotonic() - self._flushed >= SECONDS_BETWEEN_FLUSHES:
            self.flush()

    def flush(self) -> None:
        """Writes the buffers of the files, so that a kill loses none of the items."""
        for file in (*self._files, self._rows):
            file.flush()
        self._flushed = time.monotonic()

    def finish(self) -> None:
        """Writes the index and the record of the files. Raises RepeatedIdError for an id that occurs twice."""
        self.flush()
        items = map_items(self.folder, self._columns)
        ids = make_id_table(items.text, items.bounds[:, 0])
        with (self.folder / INDEX).open("wb") as file:
            file.write(ids.hashes.tobytes())
            file.write(ids.rows.tobytes())
        write_record(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def open_store(folder: Path, what: str, columns: Columns, fill: Callable[[StoreWriter], None]) -> ArrayStore:
    """Opens the store in `folder`, whose name identifies its content, and builds it first if it is not finished.

    `fill` adds all items after the first `writer.items`; `what` names them in messages. Raises RepeatedIdError for an
    id that occurs twice, and UserError if the store is damaged or the disk is full; after a full disk the same call
    resumes.
    """
    if not is_finished(folder):
        with locked(folder.parent, what):
            if not is_finished(folder):
                with writing(folder, columns) as writer:
                    fill(writer)
                    writer.finish()
    return read_store(folder, what, columns)


def is_finished(folder: Path) -> bool:
    return (folder / RECORD).exists()


@contextlib.contextmanager
def writing(folder: Path, columns: Columns) -> Iterator[StoreWriter]:
    """Yields a writer, and logs the items of an interrupted command; if the block fails, an empty store is removed."""
    try:
        with refused_in_one_line(f"{folder}: cannot be written"), StoreWriter(folder, columns) as writer:
            if writer.items:
                log.info(f"{folder}: goes on after the {writer.items:,} that an interrupted command has done")
            yield writer
    except BaseException:
        if not len(map_items(folder, columns)):
            remove(folder)
        raise


def read_store(folder: Path, what: str, columns: Columns) -> ArrayStore:
    """Opens a finished store; raises UserError if a file is missing or differs from its record."""
    if changed := changes_since_record(folder):
        raise UserError(f"{folder}: the {what} cannot be read ({'; '.join(changed)}); remove the folder and run again")
    items = map_items(folder, columns)
    hashes, rows = map_file(folder / INDEX, np.uint64).reshape(2, -1)
    return ArrayStore(items.values, items.bounds, items.text, IdTable(items.text, items.bounds[:, 0], hashes, rows))


def map_items(folder: Path, columns: Columns) -> Items:
    """The whole items of a folder, without the incomplete item that a killed process may have left."""
    width = len(columns) + 2
    found = map_file(folder / ITEMS, np.int64)
    bounds = found[: len(found) // width * width].reshape(-1, width)
    if not len(bounds) or bounds[0].any():  # empty, or not the file of a store
        bounds = np.zeros((1, width), np.int64)
    values = {column: map_file(file_of(folder, column), kind) for column, kind in columns.items()}
    text = map_file(folder / IDS, np.uint8)
    sizes = [len(text), *map(len, values.values())]
    count = min(int(np.searchsorted(bounds[:, place], size, side="right")) for place, size in enumerate(sizes))
    return Items(values, bounds[: max(1, count)], text)


def file_of(folder: Path, column: str) -> Path:
    """The file of a column's concatenated arrays."""
    return folder / f"{column}.bin"


def _open_to_append(path: Path) -> IO[bytes]:
    """Opens a file to append to; raises UserError for a symbolic link, whose target may be anywhere."""
    if path.is_symlink():
        raise UserError(f"{path}: is a link; expected a file or nothing: remove it")
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666), "ab")


def _hash_of(parts: Iterable[bytes]) -> int:
    return int.from_bytes(xxh3_64_digest(b"".join(parts)), signed=True)
