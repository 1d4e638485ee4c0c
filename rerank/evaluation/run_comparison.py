"""Compares every run with a baseline, or with the best run, on each measure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rerank.data.types import Measurements
from rerank.evaluation.effect_sizes import bootstrap_intervals, cohens_d, detectable_difference
from rerank.evaluation.measures import is_sum
from rerank.evaluation.significance import CORRECTIONS, corrected, mean_and_error, paired_test

LEVEL = 0.05


@dataclass(frozen=True)
class RunComparison:
    """A run on one measure, compared with the run called `reference`.

    `mean` is over queries, and `error` its standard error; `fold_mean` and `fold_error` are over the means of the folds
    (NaN without folds). All of these are of the sum over the queries for NumQ, NumRel and NumRet, whatever the folds.
    `low` to `high` is the bootstrap interval of `mean` (NaN if it was not asked for). From `difference` on the fields
    are NaN or None for the reference itself, which is not in the family of tests. `wins`, `ties` and `losses` count
    queries.
    """

    run: str
    measure: str
    mean: float
    error: float
    fold_mean: float
    fold_error: float
    low: float
    high: float
    best: bool
    reference: str
    difference: float = math.nan
    difference_low: float = math.nan
    difference_high: float = math.nan
    effect: float = math.nan
    p: float = math.nan
    p_corrected: float = math.nan
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None
    detectable: float = math.nan

    @property
    def is_reference(self) -> bool:
        """Whether the other runs are compared with this one."""
        return self.run == self.reference

    @property
    def headline(self) -> tuple[float, float]:
        """The mean and the standard error for the summary table: over the folds if there are any."""
        return (self.mean, self.error) if math.isnan(self.fold_mean) else (self.fold_mean, self.fold_error)

    @property
    def significant(self) -> bool:
        """Whether the difference is significant at 5 % after the correction."""
        return self.p_corrected < LEVEL


def compare_measurements(
    measurements: dict[str, Measurements],
    fold_queries: Sequence[Sequence[str]] = (),
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
    intervals: bool = False,
) -> dict[str, list[RunComparison]]:
    """Returns measure -> one comparison per run, in the order of `measurements` (run -> measure -> query_id -> value).

    All runs have values for the same queries. A run is compared with `baseline`, or with the best run: the first with
    the highest mean, over the folds if `fold_queries` (the query ids of each fold) are given. The correction is for the
    tests of all other runs on one measure. `intervals` adds bootstrap intervals, which take a second or two.
    """
    comparisons = {}
    for measure in next(iter(measurements.values())):
        values = {run: of_run[measure] for run, of_run in measurements.items()}
        query_ids = list(values[baseline or next(iter(values))])
        scale = len(query_ids) if is_sum(measure) else 1
        columns = {run: [scale * of_run[query_id] for query_id in query_ids] for run, of_run in values.items()}
        means = {run: mean_and_error(column) for run, column in columns.items()}
        fold_means = (
            means if scale > 1 and fold_queries else {run: _fold_mean(values[run], fold_queries) for run in values}
        )
        headline = fold_means if fold_queries else means
        highest = max(mean for mean, _ in headline.values())
        best = [run for run in columns if headline[run][0] == highest]
        reference = baseline or best[0]
        tests = _tests(columns, reference, test, correction)
        bounds = _intervals(columns, reference) if intervals else {}
        no_interval = (math.nan, math.nan)
        comparisons[measure] = [
            replace(
                RunComparison(run, measure, *means[run], *fold_means[run], *no_interval, run in best, reference),
                **tests.get(run, {}),
                **bounds.get(run, {}),
            )
            for run in columns
        ]
    return comparisons


def _tests(columns: dict[str, list[float]], reference: str, test: str, correction: str) -> dict[str, dict[str, Any]]:
    """The differences, p-values, effect sizes and counts of each other run; `columns` are the values of each run."""
    differences = _differences(columns, reference)
    p_values = [paired_test(columns[run], columns[reference], test) for run in differences]
    level = LEVEL / max(1, len(differences)) if CORRECTIONS[correction].label else LEVEL
    return {
        run: {
            "difference": mean_and_error(of_run)[0],
            "effect": cohens_d(of_run),
            "p": p,
            "p_corrected": p_corrected,
            "wins": sum(difference > 0 for difference in of_run),
            "ties": of_run.count(0.0),
            "losses": sum(difference < 0 for difference in of_run),
            "detectable": detectable_difference(of_run, level),
        }
        for (run, of_run), p, p_corrected in zip(
            differences.items(), p_values, corrected(p_values, correction), strict=True
        )
    }


def _intervals(columns: dict[str, list[float]], reference: str) -> dict[str, dict[str, Any]]:
    """The bootstrap intervals of the means and the differences of each run, all on the same resamples."""
    differences = _differences(columns, reference)
    intervals = bootstrap_intervals([*columns.values(), *differences.values()])
    bounds: dict[str, dict[str, Any]] = {}
    for run, (low, high) in zip(columns, intervals[: len(columns)], strict=True):
        bounds[run] = {"low": low, "high": high}
    for run, (low, high) in zip(differences, intervals[len(columns) :], strict=True):
        bounds[run] |= {"difference_low": low, "difference_high": high}
    return bounds


def _differences(columns: dict[str, list[float]], reference: str) -> dict[str, list[float]]:
    """The differences to the reference, query by query, of each other run."""
    others = [run for run in columns if run != reference]
    return {run: [a - b for a, b in zip(columns[run], columns[reference], strict=True)] for run in others}


def _fold_mean(values: dict[str, float], fold_queries: Sequence[Sequence[str]]) -> tuple[float, float]:
    if not fold_queries:
        return math.nan, math.nan
    return mean_and_error([mean_and_error([values[query_id] for query_id in fold])[0] for fold in fold_queries])
