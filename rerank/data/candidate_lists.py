"""The candidates of many queries: made from arrays when they are asked for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa

from rerank.data.arrow_arrays import from_numpy
from rerank.data.candidates import queries_without_relevant, standardised
from rerank.data.run_arrays import RunArrays
from rerank.data.trec import check_common
from rerank.data.types import Candidates, Judgments

AT_ONCE = 4096
"""Texts that are made together."""


class CandidateLists(Mapping[str, Candidates]):
    """query_id -> Candidates, in the order of `query_ids`; as `select_candidates` makes them, one at a time.

    A query that is not in the run has no documents. `qrels` may be empty. Raises UserError if the run and the judgments
    share no query: they belong to different collections.
    """

    def __init__(self, run: RunArrays, qrels: Judgments, query_ids: Iterable[str]) -> None:
        if qrels:
            check_common(run, qrels)
        self._run, self._qrels = run, qrels
        self._query_ids = dict.fromkeys(query_ids)

    def __getitem__(self, query_id: str) -> Candidates:
        if query_id not in self._query_ids:
            raise KeyError(query_id)
        doc_ids = self._run.get(query_id, ())
        judged = self._qrels.get(query_id, {})
        labels = tuple(max(0, judged.get(doc_id, 0)) for doc_id in doc_ids)
        return Candidates(query_id, doc_ids, labels, standardised(self._run.scores_of(query_id)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._query_ids)

    def __len__(self) -> int:
        return len(self._query_ids)

    def __contains__(self, query_id: object) -> bool:
        return query_id in self._query_ids

    def doc_ids(self) -> pa.Array:
        """The distinct ids of all candidates, sorted by their bytes, as an array of texts."""
        if len(self._query_ids) == len(self._run) and self._query_ids.keys() == self._run.keys():
            return self._run.ids
        used = np.zeros(len(self._run.ids), bool)
        for query_id in self._query_ids:
            if query_id in self._run:
                used[self._run.rows_of(query_id)] = True
        return self._run.ids.take(from_numpy(np.flatnonzero(used)))

    def without_relevant(self, query_ids: Iterable[str]) -> list[str]:
        """Those of these queries that have no relevant candidate; no candidates are made."""
        relevant = {
            query_id: [doc_id for doc_id, grade in self._qrels.get(query_id, {}).items() if grade >= 1]
            for query_id in query_ids
        }
        wanted = {doc_id for doc_ids in relevant.values() for doc_id in doc_ids}
        row_of = {doc_id: row for row, doc_id in enumerate(Texts(self._run.ids)) if doc_id in wanted}
        return [query_id for query_id, doc_ids in relevant.items() if not self._has_one_of(query_id, doc_ids, row_of)]

    def _has_one_of(self, query_id: str, doc_ids: list[str], row_of: Mapping[str, int]) -> bool:
        if query_id not in self._run:
            return False
        rows = [row_of[doc_id] for doc_id in doc_ids if doc_id in row_of]
        return any((self._run.rows_of(query_id) == row).any() for row in rows)


@dataclass(frozen=True)
class ListsOf(Sequence[Candidates]):
    """The candidates of these queries, in this order; each is made when it is asked for."""

    candidates: Mapping[str, Candidates]
    query_ids: Sequence[str]

    @overload
    def __getitem__(self, place: int) -> Candidates: ...

    @overload
    def __getitem__(self, place: slice) -> "ListsOf": ...

    def __getitem__(self, place: int | slice) -> "Candidates | ListsOf":
        if isinstance(place, slice):
            return ListsOf(self.candidates, self.query_ids[place])
        return self.candidates[self.query_ids[place]]

    def __len__(self) -> int:
        return len(self.query_ids)


@dataclass(frozen=True)
class Texts(Sequence[str]):
    """The texts of an array, each made when it is asked for: a list of millions takes 60 bytes and more for each."""

    array: pa.Array

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> "Texts": ...

    def __getitem__(self, place: int | slice) -> "str | Texts":
        return Texts(self.array[place]) if isinstance(place, slice) else str(self.array[place])

    def __iter__(self) -> Iterator[str]:
        for begin in range(0, len(self), AT_ONCE):
            yield from self.array[begin : begin + AT_ONCE].to_pylist()

    def __len__(self) -> int:
        return len(self.array)


def without_relevant(candidates: Mapping[str, Candidates], query_ids: Iterable[str]) -> list[str]:
    """Those of these queries that have no relevant candidate."""
    if isinstance(candidates, CandidateLists):
        return candidates.without_relevant(query_ids)
    return queries_without_relevant({query_id: candidates[query_id] for query_id in query_ids})


def distinct_doc_ids(candidates: Mapping[str, Candidates]) -> Sequence[str]:
    """The distinct ids of all candidates, sorted."""
    if isinstance(candidates, CandidateLists):
        return Texts(candidates.doc_ids())
    return sorted({doc_id for found in candidates.values() for doc_id in found.doc_ids})
