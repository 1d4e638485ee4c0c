"""The values of a run by query, and which of several settings are almost as good as the best."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from rerank.data.types import Judgments, Run
from rerank.evaluation.evaluate import evaluate

TIE = 1e-12
"""Smaller differences of means are rounding: the order in which the values are summed must not choose."""


def values_of(run: Run, qrels: Judgments, query_ids: Sequence[str], measure: str) -> dict[str, float]:
    """query_id -> the value of a run for those of the queries that are judged; 0 for one that the run does not have."""
    judged = {query_id: qrels[query_id] for query_id in query_ids if qrels.get(query_id)}
    if run.keys().isdisjoint(judged):
        return dict.fromkeys(judged, 0.0)
    (values,) = evaluate(judged, run, [measure]).values()
    return values


def almost_best(values: Sequence[Sequence[float]]) -> list[int]:
    """The places of those whose mean is within half a standard error of the best mean, which is one of them.

    `values` are those of each setting for the same queries; the standard error is that of the best mean.

    >>> almost_best([[0.5, 0.7], [0.4, 0.7], [0.1, 0.2]])
    [0, 1]
    """
    means = [fmean(of) for of in values]
    best = max(range(len(values)), key=means.__getitem__)
    error = stdev(values[best]) / math.sqrt(len(values[best])) if len(values[best]) > 1 else 0.0
    return [place for place, mean in enumerate(means) if mean >= means[best] - error / 2 - TIE]
