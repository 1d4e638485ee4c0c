"""How large a mean and a difference of means are: bootstrap intervals, effect size, and what could have been shown."""

import math
from collections.abc import Sequence

import numpy as np

from rerank.significance import CHUNK, RESAMPLES, SEED, mean_and_error

CONFIDENCE = 0.95
POWER = 0.8


def bootstrap_intervals(columns: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The 95 % intervals of the means of `columns`, equally long, a value a query each.

    They are the percentiles of the means of RESAMPLES resamples of the queries, drawn always from the same seed; all
    columns are seen on the same resamples. NaN for fewer than 2 queries: there is no interval.
    """
    values = np.asarray(columns, dtype=np.float64)
    n = values.shape[1]
    if n < 2:
        return [(math.nan, math.nan)] * len(columns)
    draw, parts = np.random.default_rng(SEED), []
    for _ in range(RESAMPLES // CHUNK):
        places = draw.integers(n, size=(CHUNK, n)) + n * np.arange(CHUNK)[:, None]
        counts = np.bincount(places.ravel(), minlength=CHUNK * n).reshape(CHUNK, n)  # of a query in a resample
        parts.append(counts.astype(np.float64) @ values.T / n)
    low, high = np.quantile(np.concatenate(parts), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def cohens_d(differences: Sequence[float]) -> float:
    """The effect size of paired values: the mean difference over the standard deviation (n - 1) of the differences.

    0 where there is no difference at all; NaN where the deviation is 0 or not known.
    """
    if not np.any(differences):
        return 0.0
    mean, error = mean_and_error(differences)
    return mean / (error * math.sqrt(len(differences))) if error > 0 else math.nan


def detectable(differences: Sequence[float], level: float) -> float:
    """The smallest mean difference that a paired t-test at `level` finds with a probability of 80 % on as many queries.

    (t_{1 - level/2} + t_{0.8}) times the standard error of the observed differences, with n - 1 degrees of freedom. NaN
    for fewer than 2 queries.
    """
    if len(differences) < 2:
        return math.nan
    from scipy.special import stdtrit

    freedom = len(differences) - 1
    return float(stdtrit(freedom, 1 - level / 2) + stdtrit(freedom, POWER)) * mean_and_error(differences)[1]
