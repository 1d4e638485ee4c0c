"""Exact search: the similarity of every query with every passage, in blocks, so that memory is bounded."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise

import numpy as np

from rerank.data.embeddings import EmbeddingStore
from rerank.data.store import release
from rerank.data.trec import ranked
from rerank.utils.progress import progress

QUERIES_AT_ONCE = 512
SCORES_AT_ONCE = 2**23
"""Scores of a block, about, 32 MB: 16,384 passages for 512 queries, and 8 million for one."""


def search_exactly(
    queries: Mapping[str, np.ndarray], documents: EmbeddingStore, depth: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Each query and its best `depth` documents, best first: those of THE order of `rerank.data.trec.ranked`.

    A document's score is that of its best passage (MaxP, Dai and Callan 2019). queries: query_id to its (dimensions,)
    vector. The vectors of the documents stay in memory if they are one block, as they are for one query.
    """
    left = progress(queries.items(), len(queries), "searching", show=len(queries) > 1)
    while some := list(islice(left, QUERIES_AT_ONCE)):
        vectors = np.stack([vector for _, vector in some]).astype(np.float32, copy=False)
        best = [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in some]
        blocks = list(pairwise(_block_bounds(documents.offsets, max(1, SCORES_AT_ONCE // len(some)))))
        for begin, end in blocks:
            offsets = documents.offsets[begin : end + 1]
            scores = documents.similarity(vectors, slice(offsets[0], offsets[-1]))
            of_documents = np.maximum.reduceat(scores, offsets[:-1] - offsets[0], axis=1)
            rows = np.arange(begin, end)
            best = [
                _best(np.concatenate([values, found]), np.concatenate([kept, rows]), depth, documents)
                for (values, kept), found in zip(best, of_documents, strict=True)
            ]
            if len(blocks) > 1:
                release(documents.vectors)
        for (query_id, _), (values, kept) in zip(some, best, strict=True):
            yield query_id, in_order(values, kept, documents)


def best_of(rows: np.ndarray, scores: np.ndarray, depth: int, documents: EmbeddingStore) -> dict[str, float]:
    """The best `depth` of the documents that have some passages; rows: (passages,) ascending; scores: theirs."""
    numbers, begins = np.unique(np.searchsorted(documents.offsets, rows, side="right") - 1, return_index=True)
    return in_order(*_best(np.maximum.reduceat(scores, begins), numbers, depth, documents), documents)


def in_order(scores: np.ndarray, numbers: np.ndarray, documents: EmbeddingStore) -> dict[str, float]:
    """The documents of these numbers, best first."""
    scores_of = dict(zip(documents.ids.ids_of(numbers), scores.tolist(), strict=True))
    return {doc_id: scores_of[doc_id] for doc_id in ranked(scores_of)}


def _block_bounds(offsets: np.ndarray, passages: int) -> Sequence[int]:
    """Where blocks of about so many passages begin, as numbers of documents, and where the last one ends."""
    ends = np.searchsorted(offsets, np.arange(passages, offsets[-1] + passages, passages), side="right") - 1
    return [int(bound) for bound in np.unique([0, *ends, len(offsets) - 1])]


def _best(scores: np.ndarray, rows: np.ndarray, depth: int, documents: EmbeddingStore) -> tuple[np.ndarray, np.ndarray]:
    """The `depth` documents with the highest scores, in any order; of ties, those with the last ids."""
    if len(scores) <= depth:
        return scores, rows
    least = np.partition(scores, -depth)[-depth]
    (above,), (tied,) = np.nonzero(scores > least), np.nonzero(scores == least)
    wanted = depth - len(above)
    if wanted < len(tied):
        tied = np.array(heapq.nlargest(wanted, tied.tolist(), key=lambda place: documents.ids.id_of(int(rows[place]))))
    kept = np.concatenate([above, tied])
    return scores[kept], rows[kept]
