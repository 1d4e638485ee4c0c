"""Exact search for one query: products in int8, a quarter as large, leave out what cannot be among the best."""

from dataclasses import dataclass
from functools import partial
from timeit import repeat
from typing import Any

import numpy as np
import torch

from rerank.data.embeddings import EmbeddingStore, or_one, units
from rerank.data.ragged import release
from rerank.retrieval.exact_search import best_of

FEWEST, MOST = 10_000, 2**30
"""Vectors from which on they are rounded, and the largest number of bytes that they may take."""
AT_ONCE = 2**10  # vectors that are rounded together: they stay in the processor's cache
TRIES, FASTER = 5, 0.6
"""How often each way is timed, and the share of the time of float32 vectors that the rounded ones may take."""
LARGEST = 127
SLACK = 1e-5  # what sums in float32 may differ by, as a share of the longest product


@dataclass(frozen=True)
class RoundedVectors:
    """The vectors of documents, of length 1 if they are compared by cosine, as `scales * values`.

    `error` is the length of the largest difference from a vector, and `length` that of the longest vector.
    """

    documents: EmbeddingStore
    values: torch.Tensor  # (passages, dimensions) int8
    scales: np.ndarray  # (passages,) float32
    error: float
    length: float

    def search(self, query: np.ndarray, depth: int) -> dict[str, float]:
        """As `search_exactly` for a query's (dimensions,) vector: the same documents, with the exact scores."""
        query, offsets = query.astype(np.float32, copy=False), self.documents.offsets
        products, error = self.products(query)
        of_documents = np.maximum.reduceat(products, offsets[:-1])
        least = np.partition(of_documents, -depth)[-depth] - 2 * error if depth < len(of_documents) else -np.inf
        numbers = np.flatnonzero(of_documents >= least)
        begins, counts = offsets[numbers], np.diff(offsets)[numbers]
        rows = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        (scores,) = self.documents.similarity(query[None], rows)
        return best_of(rows, scores, depth, self.documents)

    def products(self, query: np.ndarray) -> tuple[np.ndarray, float]:
        """(passages,) approximate products with a query's vector, and the largest difference from the exact ones."""
        query = _units(query[None], self.documents.cosine)[0]
        scale = _scales(query[None])[0]
        rounded = np.rint(query / scale).astype(np.int8)
        whole: Any = torch._int_mm(self.values, torch.from_numpy(rounded)[:, None])
        own, missed = np.linalg.norm(scale * rounded), np.linalg.norm(query - scale * rounded)
        error = own * self.error + missed * self.length + SLACK * np.linalg.norm(query) * self.length
        return whole[:, 0].numpy() * (scale * self.scales), float(error)


def round_vectors(documents: EmbeddingStore) -> RoundedVectors:
    vectors = documents.vectors
    values, scales = np.empty(vectors.shape, np.int8), np.empty(len(vectors), np.float32)
    error = length = 0.0
    for begin in range(0, len(vectors), AT_ONCE):
        rows = slice(begin, begin + AT_ONCE)
        some = _units(vectors[rows], documents.cosine)
        scales[rows] = _scales(some)
        values[rows] = np.rint(some / scales[rows, None])
        error = max(error, float(np.linalg.norm(some - scales[rows, None] * values[rows], axis=1).max()))
        length = max(length, float(np.linalg.norm(some, axis=1).max()))
    release(vectors)
    return RoundedVectors(documents, torch.from_numpy(values), scales, error, length)


def rounded_if_faster(documents: EmbeddingStore) -> RoundedVectors | None:
    """The rounded vectors, unless they are few, too many to keep, or slow on a processor without int8 products."""
    if len(documents.vectors) < FEWEST or documents.vectors.size > MOST:
        return None
    rounded, query = round_vectors(documents), np.array(documents.vectors[0])
    ways = rounded.products, lambda one: documents.similarity(one[None], slice(None))
    seconds = [min(repeat(partial(way, query), number=1, repeat=TRIES)) for way in ways]
    return rounded if seconds[0] < FASTER * seconds[1] else None


def _units(vectors: np.ndarray, cosine: bool) -> np.ndarray:
    vectors = vectors.astype(np.float32, copy=False)
    return units(vectors) if cosine else vectors


def _scales(vectors: np.ndarray) -> np.ndarray:
    """(vectors,) what the largest number of each is divided by to be LARGEST."""
    return or_one(np.abs(vectors).max(1) / LARGEST)
