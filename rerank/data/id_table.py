"""A table that finds the row of an id, in arrays that may stay on disk."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from xxhash import xxh3_64_intdigest

from rerank.data.arrays import release

IDS_AT_ONCE = 2**16


class RepeatedIdError(ValueError):
    """An id that occurs twice; `row` is where it occurs the second time."""

    def __init__(self, doc_id: str, row: int) -> None:
        super().__init__(f"{doc_id!r} occurs a second time")
        self.row = row


@dataclass(frozen=True, eq=False)
class IdTable(Mapping[str, int]):
    """Maps ids to rows 0, 1, 2, ... as a dict does, in 24 bytes an id beside the ids themselves.

    Row i has the id `text[offsets[i]:offsets[i + 1]]`, UTF-8 in uint8. hashes: (ids,) uint64, sorted; rows: (ids,)
    int64, the row of each hash, and rows of equal hashes in their order. An id is found by binary search.
    """

    text: np.ndarray
    offsets: np.ndarray
    hashes: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, doc_id: str) -> int:
        name = doc_id.encode(errors="surrogatepass")
        found, hashes = _hash(name), self.hashes.data  # a view gives items faster than an array
        place = bisect_left(hashes, found)
        while place < len(hashes) and hashes[place] == found:
            row = int(self.rows[place])
            if self._name(row) == name:
                return row
            place += 1
        raise KeyError(doc_id)

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in _names(self.text, self.offsets))

    def id_of(self, row: int) -> str:
        """The id of a row."""
        return self._name(row).decode()

    def ids_of(self, rows: np.ndarray) -> list[str]:
        """The ids of some rows: many are found sooner together."""
        text, begins, ends = self.text.data, self.offsets[rows].tolist(), self.offsets[rows + 1].tolist()
        return [str(text[begin:end], "utf-8") for begin, end in zip(begins, ends, strict=True)]

    def release(self) -> None:
        """Frees the memory of what was read of memory-mapped arrays."""
        for field in fields(self):
            release(getattr(self, field.name))

    def _name(self, row: int) -> bytes:
        return self.text[self.offsets[row] : self.offsets[row + 1]].tobytes()


def make_id_table(text: np.ndarray, offsets: np.ndarray) -> IdTable:
    """The table of these ids; see `IdTable` for the arrays. Raises RepeatedIdError for the first repeated id."""
    hashes = np.fromiter(map(_hash, _names(text, offsets)), np.uint64, len(offsets) - 1)
    rows = np.argsort(hashes, kind="stable")
    hashes = hashes[rows]
    table = IdTable(text, offsets, hashes, rows)
    for row in np.sort(rows[1:][hashes[1:] == hashes[:-1]]).tolist():
        if table[table.id_of(row)] != row:
            raise RepeatedIdError(table.id_of(row), row)
    return table


def _names(text: np.ndarray, offsets: np.ndarray) -> Iterator[bytes]:
    """The ids in their order, read a part at a time."""
    for first in range(0, len(offsets) - 1, IDS_AT_ONCE):
        bounds = offsets[first : first + IDS_AT_ONCE + 1].tolist()
        part = text[bounds[0] : bounds[-1]].tobytes()
        release(text)
        for begin, end in pairwise(bounds):
            yield part[begin - bounds[0] : end - bounds[0]]


def _hash(name: bytes) -> int:
    return xxh3_64_intdigest(name)
