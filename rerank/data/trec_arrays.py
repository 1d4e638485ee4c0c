"""Runs and judgments of millions of lines as arrays: 8 bytes a line, and each document id once."""

import itertools
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.data.arrow import Texts, from_numpy, to_numpy
from rerank.data.trec_lines import QRELS, RUN, fail_repeated, trec_tables

Number = TypeVar("Number", float, int)


@dataclass(frozen=True, eq=False)
class TrecArrays(Mapping[str, dict[str, Number]], Generic[Number]):
    """query_id -> doc_id -> score or relevance, as `Run` and `Qrels`: a query's dictionary is made when asked for.

    numbers: query_id to the query's number, of every query of the file, in its order; begins: (queries + 1,) int64,
    query i has the lines of `begins[i]` to `begins[i + 1]`; rows: (lines,) int32, rows of `ids`; scores: (lines,),
    relevance if they are judgments; ids: the distinct document ids, sorted, as an array of texts.
    """

    numbers: dict[str, int]
    begins: np.ndarray
    rows: np.ndarray
    scores: np.ndarray
    ids: pa.LargeStringArray

    def __getitem__(self, query_id: str) -> dict[str, Number]:
        lines = self._lines_of(query_id)
        doc_ids = self.ids.take(from_numpy(self.rows[lines])).to_pylist()
        return dict(zip(doc_ids, self.scores[lines].tolist(), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, query_id: object) -> bool:
        return query_id in self.numbers

    def doc_ids_of(self, query_ids: Iterable[str], depth: int) -> Texts:
        """The distinct ids of the first `depth` documents of these queries, sorted."""
        used = np.zeros(len(self.ids), bool)
        for query_id in self.numbers.keys() & query_ids:
            used[self.rows[self._lines_of(query_id)][:depth]] = True
        return Texts(self.ids.take(from_numpy(np.flatnonzero(used))))

    def to_dict(self) -> dict[str, dict[str, Number]]:
        """The same as dictionaries, which share the texts of the ids."""
        names = [intern(name) for name in self.ids.to_pylist()]
        found = {}
        for query_id in self:
            lines = self._lines_of(query_id)
            doc_ids = map(names.__getitem__, self.rows[lines].tolist())
            found[query_id] = dict(zip(doc_ids, self.scores[lines].tolist(), strict=True))
        return found

    def _lines_of(self, query_id: str) -> slice:
        number = self.numbers[query_id]
        return slice(self.begins[number], self.begins[number + 1])


def read_run_arrays(
    path: str | Path, depth: int = sys.maxsize, query_ids: Container[str] | None = None, kind: str = "float32"
) -> TrecArrays[float]:
    """Reads the best `depth` documents of each query of a TREC run, gzipped or not, in THE order.

    The documents of queries that are not in `query_ids` are left out. `kind` is the type of the scores. Raises the
    errors of `trec_tables`, and UserError for a document that a query has twice among its best.
    """
    parts = []
    for table in trec_tables(path, RUN):
        table = table.set_column(2, "value", table["value"].cast(kind))
        if query_ids is not None:
            wanted = np.array([q in query_ids for q in table["query"].chunk(0).dictionary.to_pylist()], bool)
            table = table.take(from_numpy(np.flatnonzero(wanted[to_numpy(table["query"])])))
        parts.append(_best(table, depth))
    numbers, queries, rows, scores, ids = _joined(parts)
    exact = scores.astype(np.float32, copy=False)
    begins = np.searchsorted(queries, np.arange(len(numbers) + 1))
    size = 0
    for number, (begin, end) in enumerate(itertools.pairwise(begins.tolist())):
        documents, begins[number] = rows[begin:end], size
        if len(set(documents.tolist())) < end - begin:
            row = next(row for row, count in Counter(documents.tolist()).items() if count > 1)
            fail_repeated(path, RUN, list(numbers)[number], ids[row].as_py())
        best = begin + np.lexsort((-documents, -exact[begin:end]))[:depth]
        rows[size : size + len(best)], scores[size : size + len(best)] = rows[best], scores[best]
        size += len(best)
    begins[-1] = size
    used = np.zeros(len(ids), bool)
    used[rows[:size]] = True
    rows = (np.cumsum(used, dtype=np.int32) - 1)[rows[:size]]
    return TrecArrays(numbers, begins, rows, scores[:size], ids.take(from_numpy(np.flatnonzero(used))))


def read_qrels_arrays(path: str | Path) -> TrecArrays[int]:
    """Reads judgments, gzipped or not: TREC's four columns, or BEIR's three.

    A query's documents are in the file's order. Raises the errors of `trec_tables`, and UserError for two judgments of
    a document that disagree.
    """
    numbers, queries, rows, grades, ids = _joined(list(trec_tables(path, QRELS)))
    _, firsts, places = np.unique((queries.astype(np.int64) << 32) | rows, return_index=True, return_inverse=True)
    different = np.flatnonzero(grades != grades[firsts][places])
    if len(different):
        fail_repeated(path, QRELS, list(numbers)[queries[different[0]]], ids[rows[different[0]]].as_py())
    kept = np.sort(firsts)
    begins = np.searchsorted(queries[kept], np.arange(len(numbers) + 1))
    return TrecArrays(numbers, begins, rows[kept], grades[kept], ids)


def _best(table: pa.Table, depth: int) -> pa.Table:
    """The lines of each query with its best `depth` scores, and those that tie with the last of them."""
    queries, scores = to_numpy(table["query"]), to_numpy(table["value"]).astype(np.float32)
    if np.bincount(queries, minlength=1).max() <= depth:
        return table
    order = np.lexsort((-scores, queries))
    begins = np.flatnonzero(np.diff(queries[order], prepend=-1))
    counts = np.diff(begins, append=len(order))
    lowest = scores[order[begins + np.minimum(counts, depth) - 1]]
    return table.take(from_numpy(order[scores[order] >= np.repeat(lowest, counts)]))


def _joined(parts: list[pa.Table]) -> tuple[dict[str, int], np.ndarray, np.ndarray, np.ndarray, pa.Array]:
    """The lines of all parts, those of a query together, in the parts' order; empties `parts`.

    Returns each query's number, the number of each line's query, its row of the sorted ids, its value, and the ids.
    """
    table = pa.concat_tables(parts).unify_dictionaries()
    parts.clear()
    documents = table["document"].dictionary_encode()
    ids = documents.chunks[-1].dictionary if documents.chunks else table["document"].chunk(0)  # which all chunks share
    table = table.select(["query", "value"])
    order = np.from_dlpack(pc.sort_indices(ids))
    ranks = np.empty(len(ids), np.int32)
    ranks[order] = np.arange(len(ids), dtype=np.int32)
    rows = ranks[to_numpy(documents)]
    names = [intern(name) for name in table["query"].chunk(0).dictionary.to_pylist()]
    queries, values = to_numpy(table["query"]), to_numpy(table["value"])
    if (queries[1:] < queries[:-1]).any():
        by_query = np.argsort(queries, kind="stable")
        queries, rows, values = queries[by_query], rows[by_query], values[by_query]
    return dict(zip(names, itertools.count())), queries, rows, values, ids.take(from_numpy(order))
