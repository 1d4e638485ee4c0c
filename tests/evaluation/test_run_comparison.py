import math

import pytest
from scipy.stats import ttest_rel

from rerank.data.types import Measurements
from rerank.evaluation.run_comparison import ComparisonSettings, compare_measurements

LOW = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
HIGH = {"a": 0.31, "b": 0.39, "c": 0.5, "d": 0.62}
MIXED = {"a": 0.2, "b": 0.2, "c": 0.1, "d": 0.9}


def rows(**runs: dict[str, float]) -> dict[str, Measurements]:
    return {name: {"AP": values} for name, values in runs.items()}


def test_every_run_is_compared_with_the_best() -> None:
    low, high, mixed = compare_measurements(rows(low=LOW, high=HIGH, mixed=MIXED))["AP"]
    assert (low.reference, high.reference, high.best, low.best) == ("high", "high", True, False)
    assert low.difference == pytest.approx(-0.205)
    p = ttest_rel(list(LOW.values()), list(HIGH.values())).pvalue
    assert low.p == pytest.approx(p)
    assert low.p_corrected == pytest.approx(2 * p)  # two other runs: the best is no member of the family
    assert (low.wins, low.ties, low.losses) == (0, 0, 4)
    assert (mixed.wins, mixed.ties, mixed.losses) == (1, 0, 3)
    assert (low.mark(), mixed.mark()) == ("↓", "")
    assert math.isnan(high.p)
    assert high.wins is None


def test_a_baseline_is_compared_in_both_directions() -> None:
    runs = rows(low=LOW, high=HIGH, mixed=MIXED)
    low, high, mixed = compare_measurements(runs, settings=ComparisonSettings("low", correction="none"))["AP"]
    assert low.reference == "low"
    assert high.best
    assert high.mark() == "↑"
    assert high.p == high.p_corrected
    assert mixed.ties == 1


def test_queries_are_paired_by_their_id() -> None:
    turned = dict(reversed(HIGH.items()))
    p = compare_measurements(rows(low=LOW, high=HIGH))["AP"][0].p
    assert compare_measurements(rows(low=LOW, high=turned))["AP"][0].p == pytest.approx(p)


def test_the_best_is_that_of_the_means_shown() -> None:
    folds = [["a"], ["b", "c", "d"]]
    even, odd = {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0}, {"a": 0.0, "b": 0.4, "c": 0.4, "d": 0.4}
    first, second = compare_measurements(rows(even=even, odd=odd), folds)["AP"]
    assert (first.mean, first.fold_mean, first.best) == (0.25, 0.5, True)
    assert (second.mean, second.fold_mean, second.best) == pytest.approx((0.3, 0.2, False))
    assert first.headline == pytest.approx((0.5, 0.5))
    alone = compare_measurements(rows(even=even, odd=odd))["AP"][0]
    assert math.isnan(alone.fold_mean)
    assert alone.headline == pytest.approx((0.25, 0.25))


def test_intervals_hold_the_mean_and_the_difference() -> None:
    low, high = compare_measurements(rows(low=LOW, high=HIGH), intervals=True)["AP"]
    assert 0.1 < low.low < low.mean < low.high < 0.4
    assert -0.22 <= low.difference_low < low.difference < low.difference_high <= -0.19
    assert math.isnan(high.difference_low)
    assert math.isnan(compare_measurements(rows(low=LOW))["AP"][0].low)
