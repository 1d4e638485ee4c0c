"""Compares every run with a baseline, or with the best run, on each measure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rerank.data.types import Measurements
from rerank.evaluation.effect_sizes import bootstrap_intervals, cohens_d, detectable_difference
from rerank.evaluation.significance import CORRECTIONS, corrected, mean_and_error, paired_test
from rerank.evaluation.summaries import summarised

LEVEL = 0.05


@dataclass(frozen=True)
class RunComparison:
    """A run on one measure, compared with the run called `reference`.

    `mean` is over queries, or what trec_eval has instead of it (see `summarised`), and `error` its standard error;
    `fold_mean` and `fold_error` are over the means of the folds (NaN without folds); `low` to `high` is the bootstrap
    interval of `mean` (NaN if it was not asked for). From `difference` on the fields are NaN or None for the reference
    itself, which is not in the family of tests. `wins`, `ties` and `losses` count queries.
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
        values = {run: measurements[run][measure] for run in measurements}
        fold_means = {run: _fold_mean(values[run], fold_queries) for run in values}
        headline = {
            run: (fold_means[run] if fold_queries else mean_and_error(list(values[run].values())))[0] for run in values
        }
        best = [run for run in values if headline[run] == max(headline.values())]
        reference = baseline or best[0]
        query_ids = list(values[reference])
        columns = {run: [values[run][query_id] for query_id in query_ids] for run in values}
        no_interval = (math.nan, math.nan)
        rows = [
            RunComparison(run, measure, *mean_and_error(column), *fold_means[run], *no_interval, run in best, reference)
            for run, column in columns.items()
        ]
        rows = _with_tests(rows, columns, test, correction)
        rows = _with_intervals(rows, columns) if intervals else rows
        comparisons[measure] = summarised(rows, len(query_ids))
    return comparisons


def _with_tests(
    rows: list[RunComparison], columns: dict[str, list[float]], test: str, correction: str
) -> list[RunComparison]:
    """The rows with p-values, effect sizes and counts, but for the reference; `columns` are the values of each run."""
    reference = rows[0].reference
    differences = _differences(columns, reference)
    p_values = [paired_test(columns[run], columns[reference], test) for run in differences]
    p_corrected = dict(zip(differences, corrected(p_values, correction), strict=True))
    p = dict(zip(differences, p_values, strict=True))
    level = LEVEL / max(1, len(differences)) if CORRECTIONS[correction].label else LEVEL
    return [
        row
        if row.is_reference
        else replace(
            row,
            difference=mean_and_error(differences[row.run])[0],
            effect=cohens_d(differences[row.run]),
            p=p[row.run],
            p_corrected=p_corrected[row.run],
            wins=sum(difference > 0 for difference in differences[row.run]),
            ties=differences[row.run].count(0.0),
            losses=sum(difference < 0 for difference in differences[row.run]),
            detectable=detectable_difference(differences[row.run], level),
        )
        for row in rows
    ]


def _with_intervals(rows: list[RunComparison], columns: dict[str, list[float]]) -> list[RunComparison]:
    """The rows with the bootstrap intervals of means and differences, all on the same resamples."""
    differences = _differences(columns, rows[0].reference)
    intervals = bootstrap_intervals([*columns.values(), *differences.values()])
    of_means = dict(zip(columns, intervals[: len(columns)], strict=True))
    of_differences = dict(zip(differences, intervals[len(columns) :], strict=True))
    with_intervals = []
    for row in rows:
        low, high = of_means[row.run]
        difference_low, difference_high = of_differences.get(row.run, (math.nan, math.nan))
        with_intervals.append(
            replace(row, low=low, high=high, difference_low=difference_low, difference_high=difference_high)
        )
    return with_intervals


def _differences(columns: dict[str, list[float]], reference: str) -> dict[str, list[float]]:
    """The differences to the reference, query by query, of each other run."""
    others = [run for run in columns if run != reference]
    return {run: [a - b for a, b in zip(columns[run], columns[reference], strict=True)] for run in others}


def _fold_mean(values: dict[str, float], fold_queries: Sequence[Sequence[str]]) -> tuple[float, float]:
    if not fold_queries:
        return math.nan, math.nan
    return mean_and_error([mean_and_error([values[query_id] for query_id in fold])[0] for fold in fold_queries])
