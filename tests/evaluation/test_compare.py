import math

import pytest
from scipy.stats import ttest_rel

from rerank.errors import UserError
from rerank.evaluation.compare import compare
from rerank.types import Measurements

LOW = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
HIGH = {"a": 0.31, "b": 0.39, "c": 0.5, "d": 0.62}
MIXED = {"a": 0.2, "b": 0.2, "c": 0.1, "d": 0.9}


def rows(**runs: dict[str, float]) -> dict[str, Measurements]:
    return {name: {"map": values} for name, values in runs.items()}


def test_every_run_is_compared_with_the_best() -> None:
    low, high, mixed = compare(rows(low=LOW, high=HIGH, mixed=MIXED))["map"]
    assert (low.reference, high.is_reference, high.best, low.best) == ("high", True, True, False)
    assert low.difference == pytest.approx(-0.205)
    p = ttest_rel(list(LOW.values()), list(HIGH.values())).pvalue
    assert low.p == pytest.approx(p)
    assert low.p_corrected == pytest.approx(2 * p)  # two other runs: the best is no member of the family
    assert (low.wins, low.ties, low.losses) == (0, 0, 4)
    assert (mixed.wins, mixed.ties, mixed.losses) == (1, 0, 3)
    assert low.significant
    assert not mixed.significant
    assert math.isnan(high.p)
    assert high.wins is None


def test_a_baseline_is_compared_in_both_directions() -> None:
    low, high, mixed = compare(rows(low=LOW, high=HIGH, mixed=MIXED), baseline="low", correction="none")["map"]
    assert low.is_reference
    assert high.best
    assert high.significant
    assert high.difference > 0
    assert high.p == high.p_corrected
    assert mixed.ties == 1
    with pytest.raises(UserError, match=r"--baseline lwo: no such run; did you mean low\?"):
        compare(rows(low=LOW), baseline="lwo")


def test_queries_are_paired_by_their_id() -> None:
    turned = dict(reversed(HIGH.items()))
    p = compare(rows(low=LOW, high=HIGH))["map"][0].p
    assert compare(rows(low=LOW, high=turned))["map"][0].p == pytest.approx(p)


def test_the_best_is_that_of_the_means_shown() -> None:
    folds = [["a"], ["b", "c", "d"]]
    even, odd = {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0}, {"a": 0.0, "b": 0.4, "c": 0.4, "d": 0.4}
    first, second = compare(rows(even=even, odd=odd), folds)["map"]
    assert (first.mean, first.fold_mean, first.best) == (0.25, 0.5, True)
    assert (second.mean, second.fold_mean, second.best) == pytest.approx((0.3, 0.2, False))
    assert first.shown == pytest.approx((0.5, 0.5))
    alone = compare(rows(even=even, odd=odd))["map"][0]
    assert math.isnan(alone.fold_mean)
    assert alone.shown == pytest.approx((0.25, 0.25))


def test_intervals_hold_the_mean_and_the_difference() -> None:
    low, high = compare(rows(low=LOW, high=HIGH), intervals=True)["map"]
    assert 0.1 < low.low < low.mean < low.high < 0.4
    assert -0.22 <= low.difference_low < low.difference < low.difference_high <= -0.19
    assert math.isnan(high.difference_low)
    assert math.isnan(compare(rows(low=LOW))["map"][0].low)
