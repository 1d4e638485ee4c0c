"""Fusion by reciprocal rank: s = 1 / (k + rank), summed over the runs (Cormack, Clarke and Büttcher, SIGIR 2009)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rerank.data.run_scores import strictly_decreasing
from rerank.data.trec import ranked
from rerank.data.types import Run

if TYPE_CHECKING:  # imported by the functions, so that `import rerank.evaluation` is fast
    import numpy as np

RRF_K = 60.0
"""The k of Cormack et al."""


def fuse_ranks(runs: Sequence[Run], k: float = RRF_K) -> Run:
    """The fused ranking of every query that a run has, by the sum of 1 / (`k` + rank) over the runs.

    Ranks begin at 1 and are those of `ranked`. A document adds nothing where a run does not have it. Documents with
    equal sums are in the order of the first run that has one of them. The scores are these sums as float32 values that
    strictly decrease. Raises ValueError for a negative `k`.

    >>> fused = fuse_ranks([{"q": {"a": 3.0, "b": 2.0}}, {"q": {"b": 9.0, "c": 8.0}}], k=1)
    >>> {doc_id: round(score, 4) for doc_id, score in fused["q"].items()}
    {'b': 0.8333, 'a': 0.5, 'c': 0.3333}
    """
    if not k >= 0:
        raise ValueError(f"k: expected 0 or more, got {k}")
    queries = dict.fromkeys(query_id for run in runs for query_id in run)
    return {query_id: _fuse_query([run.get(query_id, {}) for run in runs], k) for query_id in queries}


def _fuse_query(runs: Sequence[dict[str, float]], k: float) -> dict[str, float]:
    import numpy as np

    rankings = [ranked(scores) for scores in runs]
    # In the order that decides ties: the first run's documents, then those that the second one adds, and so on.
    place = {doc_id: i for i, doc_id in enumerate(dict.fromkeys(doc_id for one in rankings for doc_id in one))}
    parts = np.zeros((len(rankings), len(place)))
    for part, ranking in zip(parts, rankings, strict=True):
        part[[place[doc_id] for doc_id in ranking]] = 1 / (k + np.arange(1, len(ranking) + 1))
    return ordered_scores(list(place), add(parts))


def add(parts: "np.ndarray") -> "np.ndarray":
    """The sums of (runs, documents) values over the runs; the order of the runs does not change the rounding."""
    import numpy as np

    sums: np.ndarray = np.sort(parts, axis=0).sum(axis=0)
    return sums


def ordered_scores(doc_ids: Sequence[str], scores: "np.ndarray") -> dict[str, float]:
    """The documents by descending score, equal ones in their order, with float32 scores that strictly decrease."""
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    values = strictly_decreasing(scores[order].tolist(), "fusion")
    return {doc_ids[i]: value for i, value in zip(order.tolist(), values, strict=True)}
