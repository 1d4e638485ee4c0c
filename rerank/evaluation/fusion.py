"""Fusion of runs by reciprocal rank, or by interpolation with weights, which `weights` tunes.

Reciprocal rank: s = sum of 1 / (k + rank) over the runs (Cormack, Clarke and Büttcher, SIGIR 2009). Interpolation:
s = sum of weight * scaled score, where the scores of a query are min-max scaled to [0, 1] in each run, as in ranx and
Pyserini's hybrid search.
"""

import math
import numbers
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from rerank.data.given import given_runs, given_weights
from rerank.data.trec import ranked, strictly_decreasing
from rerank.data.types import Run

RRF_K = 60.0
"""The value of k in Cormack et al."""
Weights = tuple[float, ...]
"""One weight per run, in the order of the runs."""


def fuse_ranks(runs: Sequence[Run], k: float = RRF_K) -> Run:
    """The fused ranking of every query of the runs, by the sum of 1 / (`k` + rank) over the runs.

    Ranks start at 1 and follow `ranked`. A run without a document adds nothing to its sum. Documents with equal sums
    are in the order of the first run that has one of them. The scores are the sums as strictly decreasing float32
    values. Raises ValueError for a `k` that is negative or not finite, and UserError for a score that is not a finite
    float32.

    >>> fused = fuse_ranks([{"q": {"a": 3.0, "b": 2.0}}, {"q": {"b": 9.0, "c": 8.0}}], k=1)
    >>> {doc_id: round(score, 4) for doc_id, score in fused["q"].items()}
    {'b': 0.8333, 'a': 0.5, 'c': 0.3333}
    """
    runs = given_runs(runs)
    if not isinstance(k, numbers.Real):
        raise TypeError(f"k: expected a number, got {k!r}")
    if not 0 <= k < math.inf:
        raise ValueError(f"k: expected 0 or more, got {k}")
    fused = {}
    for query_id in queries_of(runs):
        # The order of the keys decides ties: the first run's documents, then the second run's other documents, …
        terms: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            for rank, doc_id in enumerate(ranked(run.get(query_id, {})), 1):
                terms[doc_id].append(1 / (k + rank))
        sums = [sum(sorted(summands)) for summands in terms.values()]  # sorted: the order of the runs has no effect
        fused[query_id] = _decreasing(list(terms), np.array(sums))
    return fused


def fuse_scores(runs: Sequence[Run], weights: Weights | Mapping[str, Weights]) -> Run:
    """The fused ranking of every query of the runs, by the weighted sum of scaled scores.

    `weights` apply to all queries; a mapping query_id -> weights fuses only its queries. The scores of a query are
    min-max scaled over the documents of each run, in float32, as trec_eval compares them. A run gives 0 to a document
    that it lacks, and to all documents if their scores are equal. Documents with equal sums are in the order of the
    first run, then by descending doc_id. The scores are the sums as strictly decreasing float32 values. Raises
    ValueError if the number of weights is not the number of runs, a weight is negative, or all are 0, and UserError for
    a score that is not a finite float32.

    >>> runs = [{"q": {"a": 10.0, "b": 30.0, "c": 20.0}}, {"q": {"a": 3.0, "b": 1.0, "c": 2.0}}]
    >>> fuse_scores(runs, (0.75, 0.25))
    {'q': {'b': 0.75, 'c': 0.5, 'a': 0.25}}
    """
    runs = given_runs(runs)
    if not isinstance(weights, Mapping):
        weights = dict.fromkeys(queries_of(runs), weights)
    weights = {query_id: given_weights(query_weights) for query_id, query_weights in weights.items()}
    for query_weights in dict.fromkeys(weights.values()):
        check_weights(query_weights, len(runs))
    fused = {}
    for query_id, query_weights in weights.items():
        if any(query_id in run for run in runs):
            doc_ids, scores = scaled_scores(runs, query_id)
            fused[query_id] = _decreasing(doc_ids, weighted_sums(scores, query_weights))
    return fused


def place_above(above: Run, below: Run) -> Run:
    """The documents of `above`, followed by the other documents of `below` in its order, for every query of `below`.

    The scores of `above` stay. The scores of the other documents are shifted per query, so that the best one is 1 below
    the lowest of `above`. All scores strictly decrease as float32.

    >>> place_above({"q": {"a": 5.0, "b": 4.5}}, {"q": {"a": 1.0, "b": 2.0, "c": 0.5, "d": 0.25}})
    {'q': {'a': 5.0, 'b': 4.5, 'c': 3.5, 'd': 3.25}}
    """
    placed: Run = {}
    for query_id, others in below.items():
        scores = above.get(query_id, {})
        rest = [doc_id for doc_id in ranked(others) if doc_id not in scores]
        best = ranked(scores)
        shift = scores[best[-1]] - 1 - others[rest[0]] if best and rest else 0.0
        values = [*(scores[doc_id] for doc_id in best), *(others[doc_id] + shift for doc_id in rest)]
        placed[query_id] = dict(zip([*best, *rest], strictly_decreasing(values, f"query {query_id}"), strict=True))
    return placed


def check_weights(weights: Sequence[float], runs: int) -> None:
    """Raises ValueError unless there is one weight per run, all are finite and 0 or more, and one is above 0."""
    if len(weights) != runs:
        raise ValueError(f"expected a weight for each of the {runs} runs, got {len(weights)}")
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(f"expected weights of 0 or more, one of them above 0, got {' '.join(map(str, weights))}")


def queries_of(runs: Sequence[Run]) -> list[str]:
    """The distinct queries of the runs, in the order of the runs."""
    return list(dict.fromkeys(query_id for run in runs for query_id in run))


def scaled_scores(runs: Sequence[Run], query_id: str) -> tuple[list[str], np.ndarray]:
    """The documents of a query in the order that decides ties, and their (runs, documents) scaled scores."""
    rankings = [run.get(query_id, {}) for run in runs]
    doc_ids = sorted(set().union(*rankings), reverse=True)
    scores = np.zeros((len(runs), len(doc_ids)))
    for row, ranking in zip(scores, rankings, strict=True):
        lowest = min(ranking.values(), default=0.0)
        # In float32, so that ties of trec_eval are ties here.
        row[:] = np.array([ranking.get(doc_id, lowest) for doc_id in doc_ids], dtype=np.float32)
        row -= row.min()
        row /= row.max() or 1.0
    order = np.argsort(-scores[0], kind="stable")
    return [doc_ids[i] for i in order], scores[:, order]


def weighted_sums(scores: np.ndarray, weights: Weights) -> np.ndarray:
    """The weighted sums of (runs, documents) scores over the runs; their rounding is independent of the runs' order."""
    sums: np.ndarray = np.sort(np.array(weights)[:, None] * scores, axis=0).sum(axis=0)
    return sums


def _decreasing(doc_ids: Sequence[str], scores: np.ndarray) -> dict[str, float]:
    """The documents by descending score, with ties in their order, and strictly decreasing float32 scores."""
    order = (-scores).argsort(kind="stable")
    values = strictly_decreasing(scores[order].tolist(), "fusion")
    return {doc_ids[i]: value for i, value in zip(order.tolist(), values, strict=True)}
