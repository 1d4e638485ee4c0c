"""Judgments of hundreds of thousands of queries as arrays, in a few bytes a line."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sys import intern

import numpy as np
import pyarrow as pa

from rerank.data.id_rows import IdRows, ids_at
from rerank.data.plain_lines import JudgmentColumns, encoded, judgment_columns, plain_judgments
from rerank.data.trec_columns import fail_disagreement, qrels_lines
from rerank.utils.errors import UserError

LINES = 4096
"""Lines that were read one by one and become arrays together."""


@dataclass(frozen=True, eq=False)
class JudgmentArrays(Mapping[str, dict[str, int]]):
    """query_id -> doc_id -> relevance, as `Qrels`: the dictionary of a query is made when it is asked for.

    numbers: query_id to the query's number, in the file's order; begins: (queries + 1,) int64, where the judgments of
    each query begin; rows: (judgments,) int32, rows of `ids`; grades: (judgments,) int32, places in `distinct_grades`;
    ids: the distinct ids of the documents as an array of texts.
    """

    numbers: dict[str, int]
    begins: np.ndarray
    rows: np.ndarray
    grades: np.ndarray
    distinct_grades: list[int]
    ids: pa.Array

    def __getitem__(self, query_id: str) -> dict[str, int]:
        number = self.numbers[query_id]
        judged = slice(self.begins[number], self.begins[number + 1])
        grades = (self.distinct_grades[grade] for grade in self.grades[judged].tolist())
        return dict(zip(ids_at(self.ids, self.rows[judged]), grades, strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, query_id: object) -> bool:
        return query_id in self.numbers


def read_judgment_arrays(path: str | Path) -> JudgmentArrays:
    """Reads judgments as `read_qrels` does, with its checks and messages, into 12 bytes a line."""
    lines = _Lines()
    waiting: list[tuple[str, str, int]] = []

    def take(_number: int, block: bytes, width: int) -> bool:
        columns = plain_judgments(block, width)
        if columns is None:
            return False
        flush()
        lines.add(columns)
        return True

    def flush() -> None:
        if waiting:
            lines.add(judgment_columns(waiting))
            waiting.clear()

    try:
        try:
            for _, query_id, doc_id, grade in qrels_lines(path, take):
                waiting.append((query_id, doc_id, grade))
                if len(waiting) == LINES:
                    flush()
        except UserError:
            flush()
            lines.finish()  # judgments that disagree before the malformed line come first
            raise
        flush()
        return lines.finish()
    except _DisagreementError as error:
        number, query_id, doc_id, grade = next(itertools.islice(qrels_lines(path), error.line, None))
        fail_disagreement(path, number, query_id, doc_id, (error.before, grade))


class _DisagreementError(Exception):
    def __init__(self, line: int, before: int) -> None:
        super().__init__(line, before)
        self.line, self.before = line, before


class _Lines:
    """Collects the lines, and puts those of a query together."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._grades: dict[int, int] = {}
        self._queries: list[np.ndarray] = [np.zeros(0, np.int32)]
        self._codes: list[np.ndarray] = [np.zeros(0, np.int32)]
        self._ids = IdRows()

    def add(self, lines: JudgmentColumns) -> None:
        codes, names = encoded(lines.queries)
        numbers = [self._numbers.setdefault(intern(name.decode()), len(self._numbers)) for name in names.to_pylist()]
        self._queries.append(np.array(numbers, np.int32)[codes])
        places = [self._grades.setdefault(grade, len(self._grades)) for grade in lines.distinct_grades]
        self._codes.append(np.array(places, np.int32)[lines.grades])
        self._ids.add(lines.documents)

    def finish(self) -> JudgmentArrays:
        ids, rows = self._ids.finish()
        queries, grades = np.concatenate(self._queries), np.concatenate(self._codes)
        distinct = list(self._grades)
        pairs = (queries.astype(np.int64) << 32) | rows
        order = np.argsort(pairs, kind="stable")
        firsts = np.append(True, pairs[order][1:] != pairs[order][:-1])[: len(order)]
        of_first = order[firsts][
            np.cumsum(firsts) - 1
        ]  # the first line with the same query and document, in this order
        wrong = grades[order] != grades[of_first]
        if wrong.any():
            place = np.flatnonzero(wrong)[order[wrong].argmin()]
            raise _DisagreementError(int(order[place]), distinct[grades[of_first[place]]])
        kept = np.sort(order[firsts])
        kept = kept[np.argsort(queries[kept], kind="stable")]
        counts = np.bincount(queries[kept], minlength=len(self._numbers))
        begins = np.concatenate([np.zeros(1, np.int64), counts]).cumsum()
        return JudgmentArrays(self._numbers, begins, rows[kept], grades[kept], distinct, ids)
