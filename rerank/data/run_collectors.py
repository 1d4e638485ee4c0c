"""Collects the lines of a run into arrays: query by query where the file has them so, and all of them where not."""

from collections.abc import Container
from sys import intern
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.data.arrow_arrays import from_numpy, to_numpy
from rerank.data.fingerprints import fingerprints, may_repeat
from rerank.data.id_rows import IdRows
from rerank.data.line_order import RepeatedLineError, best_lines, first_repetition
from rerank.data.plain_lines import RunColumns, encoded

AT_ONCE = 2**20
"""Lines that are sorted together, at most, unless a query has more."""


class NotGroupedError(Exception):
    """The lines of a query are not all together."""


class Collected(NamedTuple):
    """See `rerank.data.run_arrays.RunArrays`."""

    numbers: dict[str, int]
    begins: np.ndarray
    rows: np.ndarray
    ids: pa.Array
    scores: np.ndarray | None


class GroupedLines:
    """Of a run whose queries have their lines together it keeps the best `depth` of each, with `keep_scores` theirs.

    Raises NotGroupedError for another run, and RepeatedLineError.
    """

    def __init__(self, depth: int, query_ids: Container[str] | None, keep_scores: bool = False) -> None:
        self._depth, self._query_ids, self._keep_scores = depth, query_ids, keep_scores
        self._numbers: dict[str, int] = {}
        self._counts: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._ids = IdRows()
        self._lines = 0

    def add(self, lines: RunColumns, are_last: bool) -> RunColumns:
        """Adds lines and returns the rest of them: those of the last query, unless they `are_last`."""
        codes, names = encoded(lines.queries)
        if (codes[1:] < codes[:-1]).any():
            raise NotGroupedError
        end = len(codes) if are_last else int(np.searchsorted(codes, codes[-1]))
        query_ids = [intern(name.decode()) for name in names[: codes[end - 1] + 1].to_pylist()] if end else []
        if not self._numbers.keys().isdisjoint(query_ids):
            raise NotGroupedError
        self._numbers.update((query_id, number) for number, query_id in enumerate(query_ids, len(self._numbers)))
        self._add_queries(codes[:end], query_ids, lines)
        self._lines += end
        return lines.from_line(end)

    def finish(self) -> Collected:
        """What was collected."""
        ids, rows = self._ids.finish()
        begins = np.concatenate([np.zeros(1, np.int64), *self._counts]).cumsum()
        scores = np.concatenate([np.zeros(0, np.float32), *self._scores]) if self._keep_scores else None
        return Collected(self._numbers, begins, rows, ids, scores)

    def _add_queries(self, queries: np.ndarray, query_ids: list[str], lines: RunColumns) -> None:
        documents, scores = lines.documents[: len(queries)], lines.scores[: len(queries)]
        if may_repeat(queries, fingerprints(documents)):
            repeated = first_repetition(queries, encoded(documents)[0])
            if repeated is not None:
                raise RepeatedLineError(self._lines + repeated)
        places = np.arange(len(queries))
        if self._query_ids is not None:
            wanted = np.array([query_id in self._query_ids for query_id in query_ids], bool)
            places = np.flatnonzero(wanted[queries])
        kept, of_queries = best_lines(
            queries[places], places, scores[places], self._depth, lambda those: _ranks_of(documents, those)
        )
        self._counts.append(np.bincount(of_queries, minlength=len(query_ids)))
        self._ids.add(documents.take(from_numpy(places[kept])))
        if self._keep_scores:
            self._scores.append(scores[places[kept]])


class ScatteredLines:
    """Of any run it keeps all lines, in 12 bytes each, and chooses the best `depth` of each query at the end.

    Raises RepeatedLineError at the end.
    """

    def __init__(self, depth: int, query_ids: Container[str] | None, keep_scores: bool = False) -> None:
        self._depth, self._query_ids, self._keep_scores = depth, query_ids, keep_scores
        self._numbers: dict[str, int] = {}
        self._queries: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._ids = IdRows()

    def add(self, lines: RunColumns, are_last: bool) -> RunColumns:
        """Adds lines; none is left."""
        codes, names = encoded(lines.queries)
        numbers = [self._numbers.setdefault(intern(name.decode()), len(self._numbers)) for name in names.to_pylist()]
        self._queries.append(np.array(numbers, np.int32)[codes])
        self._scores.append(lines.scores)
        self._ids.add(lines.documents)
        return lines.from_line(len(codes))

    def finish(self) -> Collected:
        """What was collected."""
        ids, documents = self._ids.finish()
        queries, scores = (np.concatenate([np.zeros(0, kind), *parts]) for kind, parts in self._columns())
        self._queries, self._scores = [], []
        counts = np.bincount(queries, minlength=len(self._numbers))
        kept_counts, kept_rows, kept_scores, repetitions = [], [], [np.zeros(0, np.float32)], []
        wanted = np.array([self._query_ids is None or q in self._query_ids for q in self._numbers], bool)
        for first, stop in _ranges(counts):
            lines = np.flatnonzero((queries >= first) & (queries < stop))
            if (repeated := first_repetition(queries[lines], documents[lines])) is not None:
                repetitions.append(int(lines[repeated]))
            lines = lines[wanted[queries[lines]]]
            kept, of_queries = best_lines(
                queries[lines], documents[lines], scores[lines], self._depth, lambda rows: rows
            )
            kept_rows.append(documents[lines[kept]])
            if self._keep_scores:
                kept_scores.append(scores[lines[kept]])
            kept_counts.append(np.bincount(of_queries - first, minlength=stop - first))
        if repetitions:
            raise RepeatedLineError(min(repetitions))
        begins = np.concatenate([np.zeros(1, np.int64), *kept_counts]).cumsum()
        rows = np.concatenate([np.zeros(0, np.int32), *kept_rows])
        return Collected(self._numbers, begins, rows, ids, np.concatenate(kept_scores) if self._keep_scores else None)

    def _columns(self) -> tuple[tuple[type, list[np.ndarray]], ...]:
        return (np.int32, self._queries), (np.float32, self._scores)


def _ranks_of(ids: pa.Array, places: np.ndarray) -> np.ndarray:
    """Numbers in the order of the ids in these places."""
    order = to_numpy(pc.sort_indices(ids.take(from_numpy(places))), np.uint64)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _ranges(counts: np.ndarray) -> list[tuple[int, int]]:
    """The numbers of queries in ranges that have AT_ONCE lines at most, or one query; `counts` are their lines."""
    ends = np.cumsum(counts)
    ranges, first = [], 0
    while first < len(counts):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + AT_ONCE, side="right")))
        ranges.append((first, stop))
        first = stop
    return ranges
