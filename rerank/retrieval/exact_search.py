"""Exact search: the similarities of all queries and all passages, in blocks of bounded memory."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise

import numpy as np

from rerank.data.embeddings import EmbeddingStore
from rerank.data.mapped import release
from rerank.data.trec import ranked
from rerank.utils.progress import progress

QUERIES_AT_ONCE = 512
"""Queries of a block."""
SCORES_AT_ONCE = 2**23
"""Approximate number of scores of a block, 32 MB: 16,384 passages for 512 queries, 8 million for one query."""


def search_exactly(
    queries: Mapping[str, np.ndarray], documents: EmbeddingStore, depth: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields each query and its best `depth` documents, best first, in the order of `rerank.data.trec.ranked`.

    A document's score is the score of its best passage (MaxP, Dai and Callan 2019). `queries` maps query_id to a
    (dimensions,) vector. The vectors of the documents stay in memory if they fit in one block, as for a single query.
    """
    left = progress(queries.items(), len(queries), "searching", show=len(queries) > 1)
    while batch := list(islice(left, QUERIES_AT_ONCE)):
        vectors = np.stack([vector for _, vector in batch]).astype(np.float32, copy=False)
        best = [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in batch]
        blocks = list(pairwise(_block_bounds(documents.offsets, max(1, SCORES_AT_ONCE // len(batch)))))
        for begin, end in blocks:
            offsets = documents.offsets[begin : end + 1]
            scores = documents.similarity(vectors, slice(offsets[0], offsets[-1]))
            document_scores = np.maximum.reduceat(scores, offsets[:-1] - offsets[0], axis=1)
            rows = np.arange(begin, end)
            best = [
                _best(np.concatenate([values, found]), np.concatenate([kept, rows]), depth, documents)
                for (values, kept), found in zip(best, document_scores, strict=True)
            ]
            if len(blocks) > 1:
                release(documents.vectors)
        for (query_id, _), (values, kept) in zip(batch, best, strict=True):
            yield query_id, in_order(values, kept, documents)


def best_of(rows: np.ndarray, scores: np.ndarray, depth: int, documents: EmbeddingStore) -> dict[str, float]:
    """The best `depth` documents of some passages; rows: (passages,) ascending; scores: (passages,)."""
    numbers, begins = np.unique(np.searchsorted(documents.offsets, rows, side="right") - 1, return_index=True)
    return in_order(*_best(np.maximum.reduceat(scores, begins), numbers, depth, documents), documents)


def in_order(scores: np.ndarray, numbers: np.ndarray, documents: EmbeddingStore) -> dict[str, float]:
    """doc_id -> score of the documents with these numbers, best first."""
    scores_of = dict(zip(map(documents.ids.id_of, numbers), scores.tolist(), strict=True))
    return {doc_id: scores_of[doc_id] for doc_id in ranked(scores_of)}


def _block_bounds(offsets: np.ndarray, passages: int) -> Sequence[int]:
    """The first document of each block of about `passages` passages, and the end of the last block."""
    ends = np.searchsorted(offsets, np.arange(passages, offsets[-1] + passages, passages), side="right") - 1
    return [int(bound) for bound in np.unique([0, *ends, len(offsets) - 1])]


def _best(scores: np.ndarray, rows: np.ndarray, depth: int, documents: EmbeddingStore) -> tuple[np.ndarray, np.ndarray]:
    """The `depth` documents with the highest scores, in any order; ties prefer the highest ids."""
    if len(scores) <= depth:
        return scores, rows
    least = np.partition(scores, -depth)[-depth]
    (above,), (tied,) = np.nonzero(scores > least), np.nonzero(scores == least)
    wanted = depth - len(above)
    if wanted < len(tied):
        tied = np.array(heapq.nlargest(wanted, tied.tolist(), key=lambda place: documents.ids.id_of(int(rows[place]))))
    kept = np.concatenate([above, tied])
    return scores[kept], rows[kept]
