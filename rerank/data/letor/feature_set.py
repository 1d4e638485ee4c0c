"""Feature vectors of the documents of queries: what a learning-to-rank data set holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rerank.types import Qrels


@dataclass(frozen=True)
class FeatureSet:
    """Queries with the feature vectors of their documents; a query's documents are together.

    features: (documents, features) float32, memory-mapped; labels: (documents,) int32, memory-mapped; begins, ends:
    (queries,) int64, query q has the documents begins[q]:ends[q]; query_ids: one a query.
    id_lines: (bytes,) uint8, memory-mapped, a line for each document with its id, an empty one for a document without;
    id_begins, id_ends: (queries,) int64, where a query's lines stand. None where no document has an id.
    """

    features: np.ndarray
    labels: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    query_ids: tuple[str, ...]
    id_lines: np.ndarray | None = None
    id_begins: np.ndarray | None = None
    id_ends: np.ndarray | None = None

    def doc_ids(self, query: int) -> tuple[str, ...]:
        """The ids of a query's documents, in their order; document i without an id is called `query_id-i`, from 0."""
        count = int(self.ends[query] - self.begins[query])
        lines = [""] * count
        if self.id_lines is not None and self.id_begins is not None and self.id_ends is not None:
            lines = self.id_lines[self.id_begins[query] : self.id_ends[query]].tobytes().decode().split("\n")[:count]
        return tuple(line or f"{self.query_ids[query]}-{i}" for i, line in enumerate(lines))

    def qrels(self) -> Qrels:
        """The labels of the documents, query after query."""
        bounds = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return {
            query_id: dict(zip(self.doc_ids(query), self.labels[begin:end].tolist(), strict=True))
            for query, (query_id, (begin, end)) in enumerate(zip(self.query_ids, bounds, strict=True))
        }

    def of(self, query_ids: Sequence[str]) -> "FeatureSet":
        """These queries only, in this order; nothing is copied. Raises ValueError for a query that is not here."""
        places = {query_id: place for place, query_id in enumerate(self.query_ids)}
        unknown = [query_id for query_id in query_ids if query_id not in places]
        if unknown:
            raise ValueError(f"queries {', '.join(unknown[:5])}: expected queries of the {len(places)} that are here")
        rows = np.array([places[query_id] for query_id in query_ids], dtype=np.int64)
        return replace(
            self,
            begins=self.begins[rows],
            ends=self.ends[rows],
            query_ids=tuple(query_ids),
            id_begins=None if self.id_begins is None else self.id_begins[rows],
            id_ends=None if self.id_ends is None else self.id_ends[rows],
        )
