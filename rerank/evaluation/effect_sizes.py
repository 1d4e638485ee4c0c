"""Bootstrap confidence intervals, effect sizes and minimum detectable differences."""

import math
from collections.abc import Sequence

from rerank.evaluation.significance import CHUNK, RESAMPLES, SEED, mean_and_error

CONFIDENCE = 0.95
POWER = 0.8


def bootstrap_intervals(columns: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The 95 % confidence interval of the mean of each column; all columns have one value per query.

    The ends are percentiles of the means of RESAMPLES resamples of the queries, drawn always from the same seed and
    the same for all columns. NaN for fewer than 2 queries.
    """
    import numpy as np

    values = np.asarray(columns, dtype=np.float64)
    n = values.shape[1]
    if n < 2:
        return [(math.nan, math.nan)] * len(columns)
    generator, means = np.random.default_rng(SEED), []
    for _ in range(RESAMPLES // CHUNK):
        cells = generator.integers(n, size=(CHUNK, n)) + n * np.arange(CHUNK)[:, None]
        counts = np.bincount(cells.ravel(), minlength=CHUNK * n).reshape(CHUNK, n)  # of a query in a resample
        means.append(counts.astype(np.float64) @ values.T / n)
    low, high = np.quantile(np.concatenate(means), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def cohens_d(differences: Sequence[float]) -> float:
    """The effect size of paired values: the mean difference over the standard deviation (n - 1) of the differences.

    0 if all differences are 0; NaN if the standard deviation is 0 or unknown.

    >>> cohens_d([1.0, 2.0, 3.0])
    2.0
    """
    if not any(differences):
        return 0.0
    mean, error = mean_and_error(differences)
    return mean / (error * math.sqrt(len(differences))) if error > 0 else math.nan


def detectable_difference(differences: Sequence[float], level: float) -> float:
    """The smallest mean difference that a paired t-test at `level` detects with a power of 80 % on as many queries.

    (t_{1 - level/2} + t_{0.8}) times the standard error of the observed differences, with n - 1 degrees of freedom. NaN
    for fewer than 2 queries.
    """
    if len(differences) < 2:
        return math.nan
    from scipy.special import stdtrit

    freedom = len(differences) - 1
    return float(stdtrit(freedom, 1 - level / 2) + stdtrit(freedom, POWER)) * mean_and_error(differences)[1]
