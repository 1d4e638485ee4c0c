import math
import random

import pytest

from rerank.significance import mean_and_error, paired_t_test


def test_mean_and_standard_error() -> None:
    mean, error = mean_and_error([1.0, 2.0, 3.0, 6.0])
    assert mean == 3.0
    assert error == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3) / 2)
    assert mean_and_error([0.5, 0.5]) == (0.5, 0.0)
    mean, error = mean_and_error([0.25])
    assert mean == 0.25
    assert math.isnan(error)


@pytest.mark.parametrize("n", [2, 5, 250])
def test_paired_t_test_is_that_of_scipy(n: int) -> None:
    from scipy.stats import ttest_rel

    draw = random.Random(n)
    first = [draw.random() for _ in range(n)]
    second = [value + draw.gauss(0.1, 0.3) for value in first]
    assert paired_t_test(first, second) == pytest.approx(ttest_rel(first, second).pvalue, rel=1e-9)
    assert paired_t_test(second, first) == paired_t_test(first, second)


def test_paired_t_test_at_its_edges() -> None:
    assert paired_t_test([0.5, 0.25], [0.5, 0.25]) == 1.0
    assert paired_t_test([0.5, 0.25], [0.75, 0.5]) == 0.0
    assert math.isnan(paired_t_test([0.5], [0.25]))
    assert math.isnan(paired_t_test([], []))
    with pytest.raises(ValueError, match="expected pairs, got 2 and 1 values"):
        paired_t_test([0.5, 0.5], [0.25])
