"""How sure a mean and a difference of means are: standard errors, paired tests, corrections for several tests."""

import math
from collections.abc import Sequence

import numpy as np

RESAMPLES = 10_000
"""Random draws of the randomisation test and of the bootstrap."""
SEED = 0
CHUNK = 500  # draws at a time, so that memory does not grow with their number
TESTS = ("t", "wilcoxon", "randomisation")
CORRECTIONS = ("bonferroni", "holm", "none")


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean of n values and its standard error, s / sqrt(n) with s the sample standard deviation (n - 1).

    The values are one a fold or one a query. The error of a single value is NaN: it is not known.
    """
    n = len(values)
    mean = float(np.mean(values))
    return mean, float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan


def paired_test(first: Sequence[float], second: Sequence[float], test: str = "t") -> float:
    """The two-sided p-value of one of TESTS on paired values, one pair a query.

    NaN for fewer than 2 pairs: there is no test. Raises ValueError where the values do not pair up.
    """
    if len(first) != len(second):
        raise ValueError(f"expected pairs, got {len(first)} and {len(second)} values")
    if len(first) < 2:
        return math.nan
    differences = np.subtract(first, second)
    return {"t": _t_test, "wilcoxon": _wilcoxon, "randomisation": _randomisation}[test](differences)


def corrected(p_values: Sequence[float], correction: str = "bonferroni") -> list[float]:
    """The p-values of a family of tests, corrected for their number; NaN stays NaN but counts as a test.

    "bonferroni" multiplies by the number of tests; "holm" (Holm 1979) the smallest by it, the next by one less and so
    on, none below the one before; "none" leaves them as they are.
    """
    n = len(p_values)
    if correction == "none":
        return list(p_values)
    if correction == "bonferroni":
        return [p if math.isnan(p) else min(1.0, n * p) for p in p_values]
    result, highest = list(p_values), 0.0
    for place, i in enumerate(sorted((i for i in range(n) if not math.isnan(p_values[i])), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (n - place) * p_values[i]))
        result[i] = highest
    return result


def _t_test(differences: np.ndarray) -> float:
    """Student's t-test. Where every difference is the same, p is 1 for a difference of 0 and 0 for any other."""
    difference, error = mean_and_error(differences.tolist())
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    from scipy.special import stdtr  # scipy.stats has the same test, but takes over a second to import

    return 2 * float(stdtr(len(differences) - 1, -abs(difference) / error))


def _wilcoxon(differences: np.ndarray) -> float:
    """Wilcoxon's signed-rank test; pairs without a difference are left out, and p is 1 where none is left."""
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    from scipy.stats import wilcoxon

    return float(wilcoxon(differences).pvalue)


def _randomisation(differences: np.ndarray) -> float:
    """Fisher's randomisation test on the mean difference (Smucker, Allan and Carterette, CIKM 2007).

    The signs of the differences are drawn RESAMPLES times, always from the same seed; p = (b + 1) / (n + 1), where b of
    n draws are at least as far from 0 as what was observed.
    """
    draw, total = np.random.default_rng(SEED), abs(differences.sum())
    far = 0
    for _ in range(RESAMPLES // CHUNK):
        bits = np.frombuffer(draw.bytes(CHUNK * len(differences)), dtype=np.uint8).reshape(CHUNK, -1) & 1
        sums = np.abs(2 * (bits.astype(np.float64) @ differences) - differences.sum())
        far += int((sums >= total * (1 - 1e-9)).sum())  # as far, but for the order of a sum
    return (far + 1) / (RESAMPLES + 1)


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
