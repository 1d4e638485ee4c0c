"""How sure a mean and a difference of means are: standard errors and the paired t-test."""

import math
from collections.abc import Sequence

import numpy as np


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean of n values and its standard error, s / sqrt(n) with s the sample standard deviation (n - 1).

    The values are one a fold or one a query. The error of a single value is NaN: it is not known.
    """
    n = len(values)
    mean = float(np.mean(values))
    return mean, float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p-value of Student's t-test on the differences of paired values (one pair a query).

    Where every difference is the same, p is 1 for a difference of 0 and 0 for any other. NaN for fewer than 2 pairs:
    there is no test. Raises ValueError where the values do not pair up.
    """
    if len(first) != len(second):
        raise ValueError(f"expected pairs, got {len(first)} and {len(second)} values")
    if len(first) < 2:
        return math.nan
    difference, error = mean_and_error(np.subtract(first, second).tolist())
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    from scipy.special import stdtr  # scipy.stats has the same test, but takes over a second to import

    return 2 * float(stdtr(len(first) - 1, -abs(difference) / error))
