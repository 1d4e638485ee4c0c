"""Runs of millions of lines: the best documents of each query as arrays, in a few bytes a line."""

import itertools
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from rerank.data.id_rows import ids_at
from rerank.data.line_order import RepeatedLineError
from rerank.data.plain_lines import RunColumns, joined, plain_run, run_columns
from rerank.data.run_collectors import Collected, GroupedLines, NotGroupedError, ScatteredLines
from rerank.data.trec_columns import RUN_LINE, expect_some, fail_repeated, run_lines
from rerank.utils.errors import UserError

PART = 2**24
"""Bytes of ids and scores, at least, that are handled together."""
LINES = 4096
"""Lines that were read one by one and become arrays together."""


@dataclass(frozen=True)
class RunArrays(Mapping[str, tuple[str, ...]]):
    """query_id -> doc_ids, best first: a run in 4 bytes a line, or 8 with its scores.

    numbers: query_id to the query's number, of every query of the run, in its order; begins: (queries + 1,) int64;
    rows: (lines,) int32, rows of `ids`: query i has those of `begins[i]` to `begins[i + 1]`; ids: the distinct ids of
    these documents as an array of texts, in the order of their bytes; scores: (lines,) float32, or None if they were
    not kept.
    """

    numbers: dict[str, int]
    begins: np.ndarray
    rows: np.ndarray
    ids: pa.Array
    scores: np.ndarray | None = None

    def __getitem__(self, query_id: str) -> tuple[str, ...]:
        return tuple(ids_at(self.ids, self.rows_of(query_id)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, query_id: object) -> bool:
        return query_id in self.numbers

    def rows_of(self, query_id: str) -> np.ndarray:
        """The rows of a query's documents, best first: (documents,) int32."""
        return self.rows[self._lines_of(query_id)]

    def scores_of(self, query_id: str) -> list[float]:
        """The scores of a query's documents, best first; [] if they were not kept, or the query is not in the run."""
        if self.scores is None or query_id not in self.numbers:
            return []
        scores: list[float] = self.scores[self._lines_of(query_id)].tolist()
        return scores

    def _lines_of(self, query_id: str) -> slice:
        number = self.numbers[query_id]
        return slice(self.begins[number], self.begins[number + 1])


def read_run_arrays(
    path: str | Path, depth: int, query_ids: Container[str] | None = None, keep_scores: bool = False
) -> RunArrays:
    """Reads the best `depth` documents of each query of a TREC run, gzipped or not, in THE order.

    The documents are those of `read_run`, and so are the checks and their messages, but it takes less time, and 4 bytes
    a line where the lines of each query are together (12 where they are not). `query_ids` are those whose documents are
    kept; the lines of the others are checked too. With `keep_scores` a line takes 4 bytes more. Raises UserError as
    `read_run` does.
    """
    try:
        try:
            collected = _read(path, GroupedLines(depth, query_ids, keep_scores))
        except NotGroupedError:
            collected = _read(path, ScatteredLines(depth, query_ids, keep_scores))
    except RepeatedLineError as repeated:
        number, query_id, doc_id, _ = next(itertools.islice(run_lines(path), repeated.line, None))
        fail_repeated(path, number, query_id, doc_id)
    expect_some(path, collected.numbers, RUN_LINE)
    pa.default_memory_pool().release_unused()  # it would keep what the lines took
    return RunArrays(*collected)


def _read(path: str | Path, collector: GroupedLines | ScatteredLines) -> Collected:
    parts = _Parts(collector)
    try:
        for _, query_id, doc_id, score in run_lines(path, parts.take):
            parts.add(query_id, doc_id, score)
    except UserError:
        parts.finish()  # a document that is repeated before the malformed line comes first
        raise
    return parts.finish()


class _Parts:
    """Gathers lines in the order of the file and hands them to a collector, many at a time."""

    def __init__(self, collector: GroupedLines | ScatteredLines) -> None:
        self._collector = collector
        self._lines: list[tuple[str, str, float]] = []
        self._parts: list[RunColumns] = []
        self._size, self._enough = 0, PART

    def take(self, _number: int, block: bytes) -> bool:
        """Takes the lines of a block, if they are plain."""
        part = plain_run(block)
        if part is None:
            return False
        self._flush()
        self._append(part)
        return True

    def add(self, query_id: str, doc_id: str, score: float) -> None:
        """Adds a line."""
        self._lines.append((query_id, doc_id, score))
        if len(self._lines) == LINES:
            self._flush()

    def finish(self) -> Collected:
        """What the collector has made of all lines."""
        self._flush()
        if self._parts:
            self._collector.add(joined(self._parts), are_last=True)
        return self._collector.finish()

    def _flush(self) -> None:
        if self._lines:
            self._append(run_columns(self._lines))
            self._lines = []

    def _append(self, part: RunColumns) -> None:
        self._parts.append(part)
        self._size += part.size
        if self._size >= self._enough:
            rest = self._collector.add(joined(self._parts), are_last=False)
            self._parts, self._size = [rest], rest.size
            self._enough = max(PART, 2 * self._size)  # a query may have millions of lines
