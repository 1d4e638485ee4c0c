"""Gives each of many ids a row of a table of distinct ids, in a few bytes an id."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.data.arrow_arrays import from_numpy, from_texts, to_numpy

WAITING = 2**20
"""Ids, at least, that wait until they get their rows together: a hash table is made of all ids each time."""


FEW = 16
"""Ids that are made one by one in less time than together."""


def ids_at(ids: pa.Array, rows: np.ndarray) -> list[str]:
    """The texts in these rows of an array."""
    return [ids[row].as_py() for row in rows.tolist()] if len(rows) < FEW else ids.take(from_numpy(rows)).to_pylist()


class IdRows:
    """Distinct ids and, for every id that was added, its row.

    Ids wait until there are half as many of them as have a row, so that the time is linear in their number.
    """

    def __init__(self) -> None:
        self._ids = from_texts([], pa.large_string()).cast(pa.large_binary())
        self._rows: list[np.ndarray] = []
        self._waiting: list[pa.Array] = []
        self._count = 0

    def add(self, ids: pa.Array) -> None:
        """Adds ids, in this order: a binary array."""
        if len(ids):
            self._waiting.append(ids.cast(pa.large_binary()))
            self._count += len(ids)
        if self._count >= max(WAITING, len(self._ids) // 2):
            self._assign()

    def finish(self) -> tuple[pa.Array, np.ndarray]:
        """The distinct ids, sorted by their bytes, as texts, and the int32 row of every id that was added."""
        self._assign()
        order = to_numpy(pc.sort_indices(self._ids), np.uint64)
        ids = self._ids.take(from_numpy(order)).cast(pa.large_string())
        self._ids = None
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        rows = np.empty(sum(map(len, self._rows)), np.int32)
        end = len(rows)
        while self._rows:  # from the end, so that each part is freed once it is copied
            part = self._rows.pop()
            rows[end - len(part) : end] = ranks[part]
            end -= len(part)
        pa.default_memory_pool().release_unused()  # it would keep what the parts took
        return ids, rows

    def _assign(self) -> None:
        """Gives the ids that wait their rows; those that have one keep it, as they come first."""
        if not self._waiting:
            return
        chunks = pa.chunked_array([self._ids, *self._waiting]).dictionary_encode().chunks
        self._ids = chunks[-1].dictionary  # which all chunks share
        self._rows += [to_numpy(chunk.indices, np.int32) for chunk in chunks[-len(self._waiting) :]]
        self._waiting, self._count = [], 0
