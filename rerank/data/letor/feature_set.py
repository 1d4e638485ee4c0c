"""FeatureSet: the feature vectors of the documents of queries, as learning-to-rank data sets have them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rerank.data.types import Qrels


@dataclass(frozen=True)
class FeatureSet:
    """Queries with the feature vectors of their documents; a query's documents are together.

    features: (documents, features) float32; labels: (documents,) int32; starts, stops: (queries,) int64, query q has
    the documents starts[q]:stops[q]; query_ids: one for each query. ids: (documents,) bytes, empty for a document
    without an id, or None if no document has one. Features, labels and ids are memory-mapped.
    """

    features: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    query_ids: tuple[str, ...]
    ids: np.ndarray | None = None

    def doc_ids(self, query: int) -> tuple[str, ...]:
        """The ids of a query's documents, in their order; a document i without an id, from 0, gets `query_id-i`."""
        start, stop = int(self.starts[query]), int(self.stops[query])
        ids = [b""] * (stop - start) if self.ids is None else self.ids[start:stop].tolist()
        return tuple(doc_id.decode() or f"{self.query_ids[query]}-{i}" for i, doc_id in enumerate(ids))

    def qrels(self) -> Qrels:
        """The labels of the documents, by query."""
        ranges = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return {
            query_id: dict(zip(self.doc_ids(query), self.labels[start:stop].tolist(), strict=True))
            for query, (query_id, (start, stop)) in enumerate(zip(self.query_ids, ranges, strict=True))
        }

    def subset(self, query_ids: Sequence[str]) -> "FeatureSet":
        """The set of these queries, in this order; no vector is copied. Raises KeyError for an unknown query."""
        numbers = {query_id: number for number, query_id in enumerate(self.query_ids)}
        rows = np.array([numbers[query_id] for query_id in query_ids], dtype=np.int64)
        return replace(self, starts=self.starts[rows], stops=self.stops[rows], query_ids=tuple(query_ids))
