"""Compares every run with a baseline, or with the best run, on each measure; tables of the results."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rerank.data.types import Measurements
from rerank.evaluation.significance import (
    CONFIDENCE,
    CORRECTIONS,
    RESAMPLES,
    TESTS,
    bootstrap_intervals,
    mean_and_error,
    paired_test,
)
from rerank.evaluation.tables import Cell, Table, cells, format_mean
from rerank.utils.texts import counted

LEVEL = 0.05  # significance level
COLUMNS = 5  # measures side by side, as in the paper's table; more do not fit a terminal
GAIN_NOTE = "nDCG is trec_eval's, with gain rel (the losses have gain 2^rel - 1)."


@dataclass(frozen=True)
class RunComparison:
    """A run on one measure, compared with the run called `reference`.

    `mean` is over queries, and `error` its standard error; `fold_mean` and `fold_error` are over the means of the folds
    (NaN without folds). `low` to `high` is the bootstrap interval of `mean` (NaN unless requested). The fields from
    `difference` on are NaN or None for the reference itself, which is not tested. `wins`, `ties` and `losses` count
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
    def headline(self) -> tuple[float, float]:
        """The mean and the standard error for the summary table: over the folds if there are any."""
        return (self.mean, self.error) if math.isnan(self.fold_mean) else (self.fold_mean, self.fold_error)

    def mark(self, better: str = "↑", worse: str = "↓") -> str:
        """The mark of a difference to the reference that is significant at LEVEL after correction; otherwise ""."""
        return "" if not self.p_corrected < LEVEL else better if self.difference > 0 else worse


@dataclass(frozen=True)
class ComparisonSettings:
    """How runs are compared.

    baseline: the run that the others are compared with; None: the best run on each measure.
    test: a name in `significance.TESTS`.
    correction: a name in `significance.CORRECTIONS`.
    """

    baseline: str | None = None
    test: str = "t"
    correction: str = "bonferroni"


DEFAULT = ComparisonSettings()


def compare_measurements(
    measurements: dict[str, Measurements],
    fold_queries: Sequence[Sequence[str]] = (),
    settings: ComparisonSettings = DEFAULT,
    intervals: bool = False,
) -> dict[str, list[RunComparison]]:
    """Returns measure -> one comparison per run, in the order of `measurements` (run -> measure -> query_id -> value).

    All runs have values for the same queries. A run is compared with the baseline, or with the best run: the first with
    the highest mean, over the folds if `fold_queries` (the query ids of each fold) are given. The correction is for the
    tests of all other runs on one measure. `intervals` adds bootstrap intervals.
    """
    runs, unknown = list(measurements), (math.nan, math.nan)
    comparisons = {}
    for measure, first_values in measurements[runs[0]].items():
        values = np.array([[run[measure][query_id] for query_id in first_values] for run in measurements.values()])
        means = [mean_and_error(row) for row in values]
        fold_means = [unknown] * len(runs)
        if fold_queries:
            column = {query_id: i for i, query_id in enumerate(first_values)}
            folds = [[column[query_id] for query_id in query_ids] for query_ids in fold_queries]
            fold_means = [mean_and_error([row[fold].mean() for fold in folds]) for row in values]
        headline = [mean for mean, _ in (fold_means if fold_queries else means)]
        reference = runs.index(settings.baseline) if settings.baseline else headline.index(max(headline))
        others = [i for i in range(len(runs)) if i != reference]
        differences = values[others] - values[reference]
        # All intervals use the same resamples.
        bounds = bootstrap_intervals([*values, *differences]) if intervals else [unknown] * (len(runs) + len(others))
        rows = []
        for i, run in enumerate(runs):
            is_best = min(headline) < headline[i] == max(headline)  # of equal runs none is
            found = *means[i], *fold_means[i], *bounds[i], is_best
            rows.append(RunComparison(run, measure, *found, runs[reference]))
        p_values = [paired_test(values[i], values[reference], settings.test) for i in others]
        corrected = CORRECTIONS[settings.correction][1](p_values)
        tested = zip(others, differences, p_values, corrected, bounds[len(runs) :], strict=True)
        for i, differing, p, p_corrected, (low, high) in tested:
            rows[i] = replace(
                rows[i],
                difference=float(differing.mean()),
                difference_low=low,
                difference_high=high,
                p=p,
                p_corrected=p_corrected,
                wins=int((differing > 0).sum()),
                ties=int((differing == 0).sum()),
                losses=int((differing < 0).sum()),
            )
        comparisons[measure] = rows
    return comparisons


def summary_table(
    comparisons: dict[str, list[RunComparison]],
    averaged_over: str,
    notes: Sequence[str] = (),
    settings: ComparisonSettings = DEFAULT,
) -> Table:
    """Means and standard errors, in a block of rows for every five measures.

    `comparisons` come from `compare_measurements` with the same settings. A dagger marks a run that is significantly
    worse than the best; with a baseline, arrows mark runs that are significantly better (↑) or worse (↓).
    `averaged_over` names the units of the means, such as "5 folds, 249 queries".
    """
    others = len(next(iter(comparisons.values()))) - 1
    measures = list(comparisons)
    groups = [measures[start : start + COLUMNS] for start in range(0, len(measures), COLUMNS)]
    baseline = settings.baseline
    blocks = [_summary({measure: comparisons[measure] for measure in group}, others, baseline) for group in groups]
    legend = [_marks(others, settings)] if others else []
    return Table(f"Mean ± standard error over {averaged_over}", blocks, [*legend, *_gain_note(comparisons)], notes)


def details_table(
    comparisons: dict[str, list[RunComparison]],
    averaged_over: str,
    notes: Sequence[str] = (),
    settings: ComparisonSettings = DEFAULT,
) -> Table:
    """Intervals, differences, p-values and wins, in a block of rows for each measure.

    The arguments are those of `summary_table`; the comparisons have intervals.
    """
    first = next(iter(comparisons.values()))
    with_folds = not math.isnan(first[0].fold_mean)
    blocks = [_details(measure, rows, with_folds) for measure, rows in comparisons.items()]
    legend = _legend_of_details(with_folds, len(first) - 1, settings)
    return Table(f"Comparison over {averaged_over}", blocks, [*legend, *_gain_note(comparisons)], notes)


def _gain_note(measures: Iterable[str]) -> list[str]:
    return [GAIN_NOTE] if any(measure.partition("@")[0] == "nDCG" for measure in measures) else []


def _summary(comparisons: dict[str, list[RunComparison]], others: int, baseline: str | None) -> list[list[Cell]]:
    better, worse = ("↑", "↓") if baseline else ("", "†")
    block = [cells(["run", *comparisons])]
    for rows in zip(*comparisons.values(), strict=True):  # the rows of one run
        means = [Cell(format_mean(*row.headline), row.best and others > 0, row.mark(better, worse)) for row in rows]
        block.append([Cell(rows[0].run), *means])
    return block


def _marks(others: int, settings: ComparisonSettings) -> str:
    baseline, label = settings.baseline, CORRECTIONS[settings.correction][0]
    marks = f"↑, ↓: better, worse than {baseline}" if baseline else "†: worse than the best"
    line = f"two-sided paired {TESTS[settings.test].label} over the queries, p < {LEVEL}"
    corrected = f", {label} over the {others} other runs" if label and others > 1 else ""
    return f"{{best}}: best. {marks} ({line}{corrected})."


def _details(measure: str, rows: Sequence[RunComparison], with_folds: bool) -> list[list[Cell]]:
    head = [measure, "mean [95 %]", "SE, queries", *(["mean ± SE, folds"] if with_folds else [])]
    if len(rows) > 1:
        head += ["difference [95 %]", "p", "p corrected", "won/tied/lost"]
    return [cells(head), *(_row(row, with_folds, len(rows) == 1) for row in rows)]


def _row(row: RunComparison, with_folds: bool, single: bool) -> list[Cell]:
    means = [Cell(row.run), Cell(f"{row.mean:.4f}{_interval(row.low, row.high)}", row.best and not single)]
    means.append(Cell("" if math.isnan(row.error) else f"{row.error:.4f}"))
    if with_folds:
        means.append(Cell(format_mean(row.fold_mean, row.fold_error)))
    if single:
        return means
    if row.run == row.reference:
        return [*means, *cells(["reference", "", "", ""])]
    difference = f"{row.difference:+.4f}{_interval(row.difference_low, row.difference_high, '+')}"
    counts = f"{row.wins}/{row.ties}/{row.losses}"
    return [*means, Cell(difference, mark=row.mark()), *cells([_p(row.p), _p(row.p_corrected), counts])]


def _legend_of_details(with_folds: bool, others: int, settings: ComparisonSettings) -> list[str]:
    errors = "the queries and over the folds' means" if with_folds else "the queries"
    intervals = (
        f"[{CONFIDENCE:.0%}]: percentiles of the means of {RESAMPLES:,} bootstrap resamples of the queries. "
        f"SE: standard error, s / sqrt(n), over {errors}."
    )
    if not others:
        return [intervals]
    label, test, reference = CORRECTIONS[settings.correction][0], TESTS[settings.test], settings.baseline or "the best"
    corrected = (
        f"corrected by {label} over the {counted(others, 'other run')} of each measure" if label else "not corrected"
    )
    return [
        intervals,
        f"{{best}}: best. Differences are to {reference}, over the queries; ↑, ↓: p corrected < {LEVEL}.",
        f"p: two-sided paired {test.label}{f', {test.note}' if test.note else ''}, {corrected}.",
    ]


def _interval(low: float, high: float, sign: str = "") -> str:
    return "" if math.isnan(low) else f" [{low:{sign}.4f}, {high:{sign}.4f}]"


def _p(value: float) -> str:
    return "" if math.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"
