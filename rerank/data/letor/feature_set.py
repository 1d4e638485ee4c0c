"""FeatureSet: the feature vectors of the documents of queries, as learning-to-rank data sets have them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from rerank.data.types import Qrels


@dataclass(frozen=True)
class FeatureSet:
    """Queries with the feature vectors of their documents; a query's documents are together.

    features: (documents, features) float32, memory-mapped; labels: (documents,) int32, memory-mapped; starts, stops:
    (queries,) int64, query q has the documents starts[q]:stops[q]; query_ids: one for each query.
    id_lines: (bytes,) uint8, memory-mapped, a line for each document with its id, empty if it has none;
    id_starts, id_stops: (queries,) int64, the bytes of a query's lines. None if no document has an id.
    """

    features: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    query_ids: tuple[str, ...]
    id_lines: np.ndarray | None = None
    id_starts: np.ndarray | None = None
    id_stops: np.ndarray | None = None

    def doc_ids(self, query: int) -> tuple[str, ...]:
        """The ids of a query's documents, in their order; a document i without an id, from 0, gets `query_id-i`."""
        count = int(self.stops[query] - self.starts[query])
        lines = [""] * count
        if self.id_lines is not None and self.id_starts is not None and self.id_stops is not None:
            found = self.id_lines[self.id_starts[query] : self.id_stops[query]].tobytes().decode().split("\n")
            lines = [*found, *lines][:count]
        return tuple(line or f"{self.query_ids[query]}-{i}" for i, line in enumerate(lines))

    def qrels(self) -> Qrels:
        """The labels of the documents, by query."""
        ranges = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return {
            query_id: dict(zip(self.doc_ids(query), self.labels[start:stop].tolist(), strict=True))
            for query, (query_id, (start, stop)) in enumerate(zip(self.query_ids, ranges, strict=True))
        }

    def subset(self, query_ids: Sequence[str]) -> "FeatureSet":
        """The set of these queries, in this order; nothing is copied. Raises ValueError for an unknown query."""
        numbers = {query_id: number for number, query_id in enumerate(self.query_ids)}
        unknown = [query_id for query_id in query_ids if query_id not in numbers]
        if unknown:
            raise ValueError(
                f"queries {', '.join(unknown[:5])}: expected some of the {len(numbers)} queries of the set"
            )
        rows = np.array([numbers[query_id] for query_id in query_ids], dtype=np.int64)
        return replace(
            self,
            starts=self.starts[rows],
            stops=self.stops[rows],
            query_ids=tuple(query_ids),
            id_starts=None if self.id_starts is None else self.id_starts[rows],
            id_stops=None if self.id_stops is None else self.id_stops[rows],
        )


def join(sets: Sequence[FeatureSet]) -> FeatureSet:
    """One set of the queries of several, which have the same features and share no query; copied into memory."""
    shifts = [0, *accumulate(len(part.labels) for part in sets)]
    lines = [_lines(part) for part in sets]  # empty ones if no document has an id
    line_shifts = [0, *accumulate(len(text) for text, _, _ in lines)]
    return FeatureSet(
        np.concatenate([part.features for part in sets]),
        np.concatenate([part.labels for part in sets]),
        np.concatenate([part.starts + shift for part, shift in zip(sets, shifts, strict=False)]),
        np.concatenate([part.stops + shift for part, shift in zip(sets, shifts, strict=False)]),
        tuple(query_id for part in sets for query_id in part.query_ids),
        np.concatenate([text for text, _, _ in lines]),
        np.concatenate([starts + shift for (_, starts, _), shift in zip(lines, line_shifts, strict=False)]),
        np.concatenate([stops + shift for (_, _, stops), shift in zip(lines, line_shifts, strict=False)]),
    )


def _lines(features: FeatureSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lines of the documents' ids, and where those of each query start and stop; no lines without ids."""
    if features.id_lines is None or features.id_starts is None or features.id_stops is None:
        none = np.zeros(len(features.query_ids), np.int64)
        return np.zeros(0, np.uint8), none, none
    return features.id_lines, features.id_starts, features.id_stops
