"""Standard errors, bootstrap intervals, paired significance tests and corrections for multiple testing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rerank.utils.registry import Registry

RESAMPLES = 10_000  # random draws of the randomisation test and the bootstrap
CONFIDENCE = 0.95  # confidence level of the bootstrap intervals
SEED = 0  # fixed, so results are repeatable
DECIMALS = 10  # decimals of differences that are ranked; values of measures have rounding errors of 1e-16
CHUNK = 500  # draws at once, which bounds the memory

Values: TypeAlias = Sequence[float] | np.ndarray
PairedTest = Callable[[np.ndarray], float]
"""Maps the differences of n >= 2 paired values, (n,) float64, to the two-sided p-value."""


@dataclass(frozen=True)
class RegisteredTest:
    """A significance test, with a label and a note for the legends of tables."""

    label: str
    p_value: PairedTest
    note: str = ""


TESTS: Registry[RegisteredTest] = Registry("significance test")
"""The significance tests by name, as in `--test`."""


def significance_test(name: str, label: str, note: str = "") -> Callable[[PairedTest], PairedTest]:
    """Registers a function from paired differences to a p-value as the significance test `name` of `--test`.

    >>> @significance_test("constant", label="constant")
    ... def constant_test(differences: np.ndarray) -> float:
    ...     return 1.0
    >>> paired_test([0.1, 0.2], [0.3, 0.4], "constant")
    1.0
    >>> del TESTS["constant"]  # the example leaves the registry as it was
    """

    def register(function: PairedTest) -> PairedTest:
        TESTS.register(name, RegisteredTest(label, function, note))
        return function

    return register


def mean_and_error(values: Values) -> tuple[float, float]:
    """The mean of n values and its standard error, s / sqrt(n) with s the sample standard deviation; NaN for n = 1.

    >>> mean_and_error([0.2, 0.4])
    (0.30000000000000004, 0.1)
    """
    n = len(values)
    mean = float(np.mean(values))
    return mean, float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan


def paired_test(first: Values, second: Values, test: str = "t") -> float:
    """The two-sided p-value of one of TESTS on paired values, one pair per query; NaN for fewer than 2 pairs."""
    return TESTS[test].p_value(np.subtract(first, second)) if len(first) > 1 else math.nan


def bootstrap_intervals(columns: Sequence[Values]) -> list[tuple[float, float]]:
    """The 95 % confidence interval of the mean of each column of one value per query; NaN for fewer than 2 queries.

    The ends are percentiles of the means of RESAMPLES resamples of the queries, which are drawn from a fixed seed and
    are the same for all columns.
    """
    values = np.asarray(columns, dtype=np.float64)
    n = values.shape[1]
    if n < 2:
        return [(math.nan, math.nan)] * len(columns)
    generator, means = np.random.default_rng(SEED), []
    for _ in range(RESAMPLES // CHUNK):
        cells = generator.integers(n, size=(CHUNK, n)) + n * np.arange(CHUNK)[:, None]
        counts = np.bincount(cells.ravel(), minlength=CHUNK * n).reshape(CHUNK, n)  # of each query in a resample
        means.append(counts.astype(np.float64) @ values.T / n)
    low, high = np.quantile(np.concatenate(means), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


@significance_test("t", label="t-test")
def t_test(differences: np.ndarray) -> float:
    """Student's t-test. If all differences are equal, p is 1 for a difference of 0, otherwise 0."""
    difference, error = mean_and_error(differences.tolist())
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    from scipy.special import stdtr  # importing scipy.stats, which has this test, takes over a second

    return 2 * float(stdtr(len(differences) - 1, -abs(difference) / error))


@significance_test("wilcoxon", label="Wilcoxon signed-rank test")
def wilcoxon_test(differences: np.ndarray) -> float:
    """Wilcoxon's signed-rank test (1945) of the differences, rounded to DECIMALS decimals, by scipy's defaults.

    Pairs that do not differ are left out, as in Wilcoxon's paper; p is 1 if no pair differs. Differences of equal size
    get the mean of their ranks. The p-value is exact for up to 50 pairs that differ, or up to 13 with differences of
    equal size. For more pairs it comes from the normal approximation, with a correction for ties but not for
    continuity.
    """
    from scipy.stats import wilcoxon

    rounded = np.round(differences, DECIMALS)
    rounded = rounded[rounded != 0]
    return float(wilcoxon(rounded).pvalue) if len(rounded) else 1.0


@significance_test("randomisation", label="randomisation test", note=f"{RESAMPLES:,} draws")
def randomisation_test(differences: np.ndarray) -> float:
    """Fisher's randomisation test on the mean difference (Smucker, Allan and Carterette, CIKM 2007).

    The signs of the differences are drawn RESAMPLES times from a fixed seed; p = (b + 1) / (n + 1), where b of n draws
    are at least as far from 0 as the observed difference. scipy's permutation_test takes thirty times as long.
    """
    generator, total = np.random.default_rng(SEED), abs(differences.sum())
    extreme = 0
    for _ in range(RESAMPLES // CHUNK):
        bits = np.frombuffer(generator.bytes(CHUNK * len(differences)), dtype=np.uint8).reshape(CHUNK, -1) & 1
        sums = np.abs(2 * (bits.astype(np.float64) @ differences) - differences.sum())
        extreme += int((sums >= total * (1 - 1e-9)).sum())  # tolerates the rounding of sums in another order
    return (extreme + 1) / (RESAMPLES + 1)


def bonferroni(p_values: Sequence[float]) -> list[float]:
    """Each p-value times the number of tests, at most 1."""
    return [p if math.isnan(p) else min(1.0, len(p_values) * p) for p in p_values]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm (1979): the smallest of n p-values times n, the next times n - 1, and so on, made non-decreasing."""
    known = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=p_values.__getitem__)
    result, highest = list(p_values), 0.0
    for rank, i in enumerate(known):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        result[i] = highest
    return result


Correction = tuple[str, Callable[[Sequence[float]], list[float]]]
CORRECTIONS: Registry[Correction] = Registry("correction")
"""Name of a correction, as in `--correction` -> its label, and a function from p-values to corrected ones.

The function keeps the order of the p-values and NaN.
"""
CORRECTIONS.update({"bonferroni": ("Bonferroni", bonferroni), "holm": ("Holm", holm), "none": ("", list)})
