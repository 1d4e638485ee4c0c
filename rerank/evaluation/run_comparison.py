"""Compares every run with a baseline, or with the best run, on each measure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rerank.data.types import Measurements
from rerank.evaluation.measures import is_sum
from rerank.evaluation.significance import CORRECTIONS, bootstrap_intervals, mean_and_error, paired_test

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
    p: float = math.nan
    p_corrected: float = math.nan
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None

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
        fold_means = dict.fromkeys(values, (math.nan, math.nan))
        if fold_queries:
            fold_means = means if scale > 1 else {run: _fold_mean(values[run], fold_queries) for run in values}
        headline = {run: mean for run, (mean, _) in (fold_means if fold_queries else means).items()}
        best = [run for run in columns if headline[run] == max(headline.values())]
        reference = baseline or best[0]
        others = [run for run in columns if run != reference]
        differences = [[a - b for a, b in zip(columns[run], columns[reference], strict=True)] for run in others]
        bounds = [(math.nan, math.nan)] * (len(columns) + len(others))
        if intervals:  # all on the same resamples
            bounds = bootstrap_intervals([*columns.values(), *differences])
        rows = {
            run: RunComparison(run, measure, *means[run], *fold_means[run], *interval, run in best, reference)
            for run, interval in zip(columns, bounds, strict=False)
        }
        p_values = [paired_test(columns[run], columns[reference], test) for run in others]
        corrected = CORRECTIONS[correction][1](p_values)
        tested = zip(others, differences, p_values, corrected, bounds[len(columns) :], strict=True)
        for run, of_queries, p, p_corrected, (low, high) in tested:
            rows[run] = replace(
                rows[run],
                difference=mean_and_error(of_queries)[0],
                difference_low=low,
                difference_high=high,
                p=p,
                p_corrected=p_corrected,
                wins=sum(difference > 0 for difference in of_queries),
                ties=of_queries.count(0.0),
                losses=sum(difference < 0 for difference in of_queries),
            )
        comparisons[measure] = list(rows.values())
    return comparisons


def _fold_mean(values: dict[str, float], fold_queries: Sequence[Sequence[str]]) -> tuple[float, float]:
    return mean_and_error([mean_and_error([values[query_id] for query_id in fold])[0] for fold in fold_queries])
