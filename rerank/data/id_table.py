"""A sorted table of ids with a number for each: compact in memory, or memory-mapped from files."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from rerank.data.arrays import map_array, map_bytes, release, slices_of, write_array
from rerank.data.id_order import sort_strings
from rerank.utils.integrity import Record, RecordedFile

IDS, OFFSETS, NUMBERS = "ids.bin", "id_offsets.npy", "id_numbers.npy"
SAMPLES = 2**17
"""Ids that are kept in memory at most, to find the part of the table in which another one is."""
ROWS_AT_ONCE = 2**16


class RepeatedIdError(ValueError):
    """An id that a table was to get a second time; `number` is the one that came with it."""

    def __init__(self, doc_id: str, number: int) -> None:
        super().__init__(f"{doc_id!r} occurs a second time")
        self.doc_id, self.number = doc_id, number


class IdTable(Mapping[str, int]):
    """Maps ids to numbers, as a dict does, in 10 to 20 bytes an id, most of which may stay on disk.

    Id i, in the order of UTF-8, is `ids[offsets[i]:offsets[i + 1]]`, uint8, and has the number `numbers[i]`, or i if
    `numbers` is None. An id is found by binary search, in a few µs. Iteration is in the order of the numbers.
    """

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, numbers: np.ndarray | None = None) -> None:
        self.ids, self.offsets, self.numbers = ids, offsets, numbers
        self._ids, self._offsets = ids.data, offsets.data  # views, whose items are read faster than an array's
        self._numbers = None if numbers is None else numbers.data
        self._step = max(1, -(-len(self) // SAMPLES))
        self._samples = [self._at(place) for place in range(0, len(self), self._step)]
        self.release()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, doc_id: str) -> int:
        name = doc_id.encode(errors="surrogatepass")
        sample = bisect_right(self._samples, name) - 1
        low = sample * self._step
        if sample < 0:
            raise KeyError(doc_id)
        if self._step == 1:
            found = self._samples[sample]
        else:
            high = min(low + self._step, len(self))
            while high - low > 1:
                middle = (low + high) // 2
                if self._at(middle) <= name:
                    low = middle
                else:
                    high = middle
            found = self._at(low)
        if found != name:
            raise KeyError(doc_id)
        return low if self._numbers is None else self._numbers[low]

    def __iter__(self) -> Iterator[str]:
        numbers = self.numbers
        places = range(len(self)) if numbers is None else np.argsort(numbers, kind="stable").tolist()
        yield from (self._at(place).decode() for place in places)
        self.release()

    def release(self) -> None:
        """Lets go of what was read of memory-mapped files."""
        for values in (self.ids, self.offsets, self.numbers):
            release(values)

    def _at(self, place: int) -> bytes:
        return self._ids[self._offsets[place] : self._offsets[place + 1]].tobytes()


def make_id_table(pairs: Iterable[tuple[str, int]]) -> IdTable:
    """The table, in memory, of these ids and their numbers, which are not negative.

    Raises RepeatedIdError for the first id that occurs a second time.
    """
    content, ends, numbers = bytearray(), array("q", [0]), array("q")
    last, rises = b"", True
    for doc_id, number in pairs:
        name = doc_id.encode()
        rises = rises and (name > last or not numbers)
        last = name
        content += name
        ends.append(len(content))
        numbers.append(number)
    arrays = (np.frombuffer(content, np.uint8), np.frombuffer(ends, np.int64), np.frombuffer(numbers, np.int64))
    return table_of_arrays(*arrays, rises=rises)


def table_of_arrays(ids: np.ndarray, offsets: np.ndarray, numbers: np.ndarray, rises: bool = False) -> IdTable:
    """The table, in memory, of ids put together, `ids[offsets[i]:offsets[i + 1]]`, and their numbers.

    Offsets and numbers are uint32 or int64; all may be memory-mapped. `rises` tells that the ids are sorted and
    distinct. Raises RepeatedIdError as `make_id_table`.
    """
    if not rises:
        order, repeats = sort_strings(ids, offsets)
        if repeats.any():
            row = int(order[repeats].min())
            raise RepeatedIdError(ids[offsets[row] : offsets[row + 1]].tobytes().decode(), int(numbers[row]))
        ids, offsets, numbers = _reordered(ids, offsets, order), _offsets(offsets, order), numbers[order]
    in_order = all((numbers[some] == np.arange(some.start, some.stop)).all() for some in slices_of(len(numbers)))
    return IdTable(ids, smallest(offsets), None if in_order else smallest(numbers))


def write_id_table(folder: Path, table: IdTable) -> Record:
    """Writes the files of a table into a folder, and returns their record."""
    record: Record = {}
    with RecordedFile(folder / IDS) as file:
        file.write(table.ids.data)
    record[IDS] = file.facts()
    record[OFFSETS] = write_array(folder / OFFSETS, table.offsets)
    if table.numbers is not None:
        record[NUMBERS] = write_array(folder / NUMBERS, table.numbers)
    return record


def read_id_table(folder: Path) -> IdTable:
    """The table of files in a folder, memory-mapped; their record is not checked here.

    Raises ValueError for files that do not belong together, and OSError for one that cannot be opened.
    """
    offsets = map_array(folder / OFFSETS, (np.uint32, np.int64), 1)
    numbers = map_array(folder / NUMBERS, (np.uint32, np.int64), 1) if (folder / NUMBERS).exists() else None
    ids = map_bytes(folder / IDS, np.uint8)
    if not len(offsets) or offsets[-1] != len(ids) or (numbers is not None and len(numbers) != len(offsets) - 1):
        raise ValueError("the files of its ids do not belong together")
    return IdTable(ids, offsets, numbers)


def smallest(values: np.ndarray) -> np.ndarray:
    """The numbers as uint32 if they fit, else as int64."""
    return values.astype(np.uint32 if not len(values) or values.max() < 2**32 else np.int64, copy=False)


def _offsets(offsets: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The offsets of the strings when they are in this order."""
    moved = np.zeros_like(offsets)
    for some in slices_of(len(order)):
        rows = order[some]
        moved[some.start + 1 : some.stop + 1] = offsets[rows + 1] - offsets[rows]
    return np.cumsum(moved, dtype=moved.dtype, out=moved)


def _reordered(ids: np.ndarray, offsets: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The strings in this order, put together."""
    moved, end = np.empty_like(ids), 0
    for first in range(0, len(order), ROWS_AT_ONCE):
        rows = order[first : first + ROWS_AT_ONCE]
        starts = offsets[rows].astype(np.int64)
        lengths = offsets[rows + 1] - starts
        before = lengths.cumsum() - lengths
        part = ids[np.repeat(starts - before, lengths) + np.arange(lengths.sum())]
        moved[end : end + len(part)] = part
        end += len(part)
        release(ids)  # if they are memory-mapped
    return moved
