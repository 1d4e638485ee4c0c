import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from rerank.evaluation.significance import (
    CORRECTIONS,
    RESAMPLES,
    TESTS,
    bootstrap_intervals,
    mean_and_error,
    paired_test,
)


def test_mean_and_standard_error() -> None:
    mean, error = mean_and_error([1.0, 2.0, 3.0, 6.0])
    assert mean == 3.0
    assert error == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3) / 2)
    assert mean_and_error([0.5, 0.5]) == (0.5, 0.0)
    mean, error = mean_and_error([0.25])
    assert mean == 0.25
    assert math.isnan(error)


def paired(n: int, difference: float = 0.1) -> tuple[list[float], list[float]]:
    draw = random.Random(n)
    first = [draw.random() for _ in range(n)]
    return first, [value + draw.gauss(difference, 0.3) for value in first]


@pytest.mark.parametrize("n", [2, 5, 250])
def test_t_test_is_that_of_scipy(n: int) -> None:
    first, second = paired(n)
    assert paired_test(first, second) == pytest.approx(stats.ttest_rel(first, second).pvalue, rel=1e-9)


def test_wilcoxon_is_blind_to_rounding_errors() -> None:
    """0.6 - 0.4 is 0.19999999999999996 and 0.4 - 0.2 is 0.2, which are one difference."""
    first = [0.4, 0.6, 0.4, 0.6, 0.0, 0.6, 0.6, 0.2]
    second = [0.8, 0.2, 0.4, 1.0, 0.4, 0.8, 0.4, 0.4]
    unrounded = np.subtract(first, second)
    assert stats.wilcoxon(unrounded[unrounded != 0]).pvalue < 0.2
    assert paired_test(first, second, "wilcoxon") == 0.375
    assert paired_test([0.2, 0.5], [0.2 + 1e-12, 0.5 - 1e-12], "wilcoxon") == 1.0


@pytest.mark.parametrize("difference", [0.0, 0.1, 0.25])
def test_randomisation_comes_near_the_enumeration_of_all_signs(difference: float) -> None:
    first, second = paired(10, difference)
    apart = [a - b for a, b in zip(first, second, strict=True)]
    sums = [
        abs(sum(s * d for s, d in zip(signs, apart, strict=True))) for signs in itertools.product((1, -1), repeat=10)
    ]
    exact = sum(total >= abs(sum(apart)) - 1e-12 for total in sums) / len(sums)
    found = paired_test(first, second, "randomisation")
    assert found == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / RESAMPLES) + 1e-4)
    assert found == paired_test(first, second, "randomisation")  # seeded


def test_randomisation_of_a_difference_that_no_draw_reaches() -> None:
    assert paired_test([0.1 * i + 1 for i in range(40)], [0.0] * 40, "randomisation") == 1 / (RESAMPLES + 1)


@pytest.mark.parametrize("test", TESTS)
def test_tests_are_two_sided_and_need_pairs(test: str) -> None:
    first, second = paired(20)
    assert paired_test(second, first, test) == pytest.approx(paired_test(first, second, test))
    assert paired_test([0.5, 0.25], [0.5, 0.25], test) == 1.0
    assert math.isnan(paired_test([0.5], [0.25], test))
    assert math.isnan(paired_test([], [], test))


def test_t_test_where_every_difference_is_the_same() -> None:
    assert paired_test([0.5, 0.25], [0.75, 0.5]) == 0.0


def test_corrections_by_hand() -> None:
    p_values = [0.01, 0.04, 0.03, 0.5]
    bonferroni, holm, none = (correct for _, correct in CORRECTIONS.values())
    assert none(p_values) == p_values
    assert bonferroni(p_values) == pytest.approx([0.04, 0.16, 0.12, 1.0])
    # Holm: 4 * 0.01, 3 * 0.03, then 2 * 0.04 = 0.08, which may not be below 0.09, and 1 * 0.5.
    assert holm(p_values) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    with_unknown = holm([0.01, math.nan, 0.02])
    assert [with_unknown[0], with_unknown[2]] == pytest.approx([0.03, 0.04])
    assert math.isnan(with_unknown[1])
    assert holm([]) == []


def values(n: int, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(0.2, 0.5) for _ in range(n)]


def test_intervals_are_the_percentiles_of_resampled_means() -> None:
    columns = [values(60), values(60, seed=1)]
    for (low, high), column in zip(bootstrap_intervals(columns), columns, strict=True):
        draw = np.random.default_rng(1)
        means = [np.mean(draw.choice(column, 60)) for _ in range(5_000)]
        error = mean_and_error(column)[1]
        assert (low, high) == pytest.approx(np.quantile(means, [0.025, 0.975]).tolist(), abs=0.15 * error)
        assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_intervals_are_repeatable_and_paired() -> None:
    column = values(30)
    (alone,) = bootstrap_intervals([column])
    together = bootstrap_intervals([column, [value + 1 for value in column], [0.5] * 30])
    assert together[0] == pytest.approx(alone)
    assert together[1] == pytest.approx([end + 1 for end in alone])
    assert together[2] == pytest.approx((0.5, 0.5))
    assert all(map(math.isnan, bootstrap_intervals([[0.5]])[0]))
