"""Pseudo-relevance feedback for a bi-encoder: a query's vector moves towards the best documents of an earlier run.

Rocchio, "Relevance feedback in information retrieval", 1971, without negative documents; with the vectors of a
bi-encoder: Li et al., "Pseudo Relevance Feedback with Deep Language Models and Dense Retrievers", TOIS 2023.
"""

from collections.abc import Mapping

import numpy as np

from rerank.data.embeddings import EmbeddingStore


def add_feedback(
    queries: Mapping[str, np.ndarray], feedback: Mapping[str, list[int]], documents: EmbeddingStore
) -> dict[str, np.ndarray]:
    """query_id -> the unit vector of the query plus the mean of those of its documents, as long as the query's.

    A document's vector is the mean of its passages'. queries: query_id to its (dimensions,) vector, which stays as it
    is for a query without feedback.
    """
    moved = dict(queries)
    for query_id in queries.keys() & feedback.keys():
        query = queries[query_id]
        means = [_unit(documents.vectors_of(number).mean(0)) for number in feedback[query_id]]
        vector = _unit(_unit(query) + np.mean(means, axis=0)) * np.linalg.norm(query)
        moved[query_id] = vector.astype(np.float32)
    return moved


def _unit(vector: np.ndarray) -> np.ndarray:
    unit: np.ndarray = vector / (np.linalg.norm(vector) or 1.0)
    return unit
