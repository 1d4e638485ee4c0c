import math
import random

import numpy as np
import pytest
from scipy import stats

from rerank.evaluation.effect_sizes import bootstrap_intervals, cohens_d, detectable_difference
from rerank.evaluation.significance import mean_and_error


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


def test_effect_size_by_hand() -> None:
    assert cohens_d([1.0, 2.0, 3.0, 6.0]) == pytest.approx(3 / math.sqrt(14 / 3))
    assert cohens_d([0.0, 0.0]) == 0.0
    assert math.isnan(cohens_d([0.5, 0.5]))


@pytest.mark.parametrize(("n", "level"), [(10, 0.05), (50, 0.05), (249, 0.05 / 13)])
def test_a_detectable_difference_is_found_four_times_in_five(n: int, level: float) -> None:
    differences = values(n)
    shift = detectable_difference(differences, level) / mean_and_error(differences)[1]
    critical = stats.t.ppf(1 - level / 2, n - 1)
    assert stats.nct.sf(critical, n - 1, shift) == pytest.approx(0.8, abs=0.01)
    assert math.isnan(detectable_difference([0.1], level))
