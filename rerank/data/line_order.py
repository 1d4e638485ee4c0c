"""THE order of a run's lines in arrays (see `rerank.data.trec.ranked`), and documents that a query has twice."""

from collections.abc import Callable

import numpy as np


class RepeatedLineError(Exception):
    """A query has a document for the second time on line number `line`, counted from 0 without comments."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


Ranks = Callable[[np.ndarray], np.ndarray]
"""Numbers of documents -> numbers in the order of their ids."""


def first_repetition(queries: np.ndarray, documents: np.ndarray) -> int | None:
    """The first of these lines whose document its query has on an earlier one; None if there is none.

    queries, documents: (lines,) int32, numbers from 0.
    """
    pairs = (queries.astype(np.int64) << 32) | documents
    ordered = np.sort(pairs)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return None
    suspects = np.flatnonzero(np.isin(pairs, repeated))
    _, firsts = np.unique(pairs[suspects], return_index=True)
    return int(np.delete(suspects, firsts).min())


def best_lines(
    queries: np.ndarray, documents: np.ndarray, scores: np.ndarray, depth: int, ranks: Ranks
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the best `depth` lines of each query, query by query, best first; and the query of each.

    queries, documents: (lines,) int32; scores: (lines,) float32. Of equal scores the document with the higher id comes
    first; `ranks` is asked about the documents of these lines alone.
    """
    order = _by_score(queries, scores)
    queries, sorted_scores = queries[order], scores[order]
    same = (queries[1:] == queries[:-1]) & (sorted_scores[1:] == sorted_scores[:-1])
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        groups = np.cumsum(~same[tied - 1])
        order[tied] = order[tied[np.lexsort((-ranks(documents[order[tied]]).astype(np.int64), groups))]]
    begins = np.flatnonzero(np.append(True, queries[1:] != queries[:-1])[: len(queries)])
    places = np.arange(len(queries)) - np.repeat(begins, np.diff(np.append(begins, len(queries))))
    kept = places < depth
    return order[kept], queries[kept]


def _by_score(queries: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The numbers of the lines, query by query with falling scores; most runs are in this order already."""
    lines = np.arange(len(queries))
    out_of_order = (queries[1:] < queries[:-1]) | ((queries[1:] == queries[:-1]) & (scores[1:] > scores[:-1]))
    if not out_of_order.any():
        return lines
    return np.lexsort((-scores, queries))
