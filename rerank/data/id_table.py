"""A table of ids: text to row, in 24 bytes per id plus the ids themselves."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from xxhash import xxh3_64_intdigest


class RepeatedIdError(ValueError):
    """An id occurs twice; the second argument is the row of its second occurrence."""


@dataclass(frozen=True, eq=False)
class IdTable(Mapping[str, int]):
    """Maps ids to rows 0, 1, 2, … like a dict, in 24 bytes per id plus the ids themselves.

    text: the concatenated ids, UTF-8; ends: (ids + 1,) int64, 0 and the end of each id; hashes: (ids,) uint64, sorted;
    rows: (ids,) int64, the row of each hash, ascending for equal hashes.
    """

    text: np.ndarray
    ends: np.ndarray
    hashes: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item_id: str) -> int:
        found, hashes = _hash_of_id(item_id.encode(errors="surrogatepass")), self.hashes.data  # faster than an array
        for place in range(bisect_left(hashes, found), len(hashes)):
            if hashes[place] != found:
                break
            if self.id_of(row := int(self.rows[place])) == item_id:
                return row
        raise KeyError(item_id)

    def __iter__(self) -> Iterator[str]:
        return map(self.id_of, range(len(self)))

    def id_of(self, row: int) -> str:
        return id_at(self.text, self.ends, row).decode()


def make_id_table(text: np.ndarray, ends: np.ndarray) -> IdTable:
    """The table of the ids in `text`; raises RepeatedIdError for the first repeated id."""
    count = len(ends) - 1
    hashes = np.fromiter((_hash_of_id(id_at(text, ends, row)) for row in range(count)), np.uint64, count)
    rows = np.argsort(hashes, kind="stable")
    hashes = hashes[rows]
    table = IdTable(text, ends, hashes, rows)
    for row in np.sort(rows[1:][hashes[1:] == hashes[:-1]]).tolist():
        if table[table.id_of(row)] != row:
            raise RepeatedIdError(f"{table.id_of(row)!r} occurs a second time", row)
    return table


def id_at(text: np.ndarray, ends: np.ndarray, row: int) -> bytes:
    """The id of a row, UTF-8."""
    begin, end = ends[row : row + 2].tolist()
    return text[begin:end].tobytes()


def _hash_of_id(item_id: bytes) -> int:
    return xxh3_64_intdigest(item_id)
