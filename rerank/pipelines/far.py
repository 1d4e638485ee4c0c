"""Finds far queries, those least similar to training queries: the gain on them is to be expected for new topics."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from rerank.pipelines.crossfit import Parts
from rerank.pipelines.stages.neighbours import word_vectors

SHARE = 3
"""One query in three is far."""

BLOCK = 500
"""Queries that are compared at a time, so that memory is linear in their number."""


def far_queries(parts: Parts, tested: Collection[str], words: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The third of the tested parts' queries that is least similar to any query of another part.

    `words` has the words of each query. The similarity is the cosine of tf-idf vectors.
    """
    likeness = likeness_of(parts, tested, words)
    return frozenset(sorted(likeness, key=likeness.__getitem__)[: len(likeness) // SHARE])


def likeness_of(parts: Parts, tested: Collection[str], words: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The largest cosine of each query of the tested parts with a query of another part."""
    query_ids = [query_id for in_part in parts.values() for query_id in in_part]
    part_of = np.repeat(np.arange(len(parts)), [len(in_part) for in_part in parts.values()])
    vectors = word_vectors([words[query_id] for query_id in query_ids])
    found: dict[str, float] = {}
    for number, part in enumerate(parts):
        is_own = part_of == number
        if part not in tested or is_own.all():
            continue
        own, others = np.flatnonzero(is_own), vectors[~is_own].T
        for start in range(0, len(own), BLOCK):
            rows = own[start : start + BLOCK]
            nearest = (vectors[rows] @ others).max(axis=1).toarray().ravel()
            found |= {query_ids[row]: float(cosine) for row, cosine in zip(rows, nearest, strict=True)}
    return found
