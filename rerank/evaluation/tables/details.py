"""The table of all details: intervals, differences, effect sizes, p-values and detectable differences."""

import math
from collections.abc import Sequence

from rerank.evaluation.effect_sizes import CONFIDENCE, POWER
from rerank.evaluation.run_comparison import LEVEL, RunComparison
from rerank.evaluation.significance import CORRECTIONS, RESAMPLES, TESTS
from rerank.evaluation.tables.summary import measure_notes
from rerank.evaluation.tables.table import Cell, Table, cells, format_mean


def details_table(
    comparisons: dict[str, list[RunComparison]],
    averaged_over: str,
    notes: Sequence[str] = (),
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Table:
    """A block for each measure, a row for each run.

    `comparisons` are those of `compare_measurements` with intervals and with the same `baseline`, `test` and
    `correction`. `averaged_over` says what the means are over, such as "5 folds, 249 queries".
    """
    rows_of_first = next(iter(comparisons.values()))
    with_folds = not any(math.isnan(row.fold_mean) for rows in comparisons.values() for row in rows)
    single = len(rows_of_first) == 1
    blocks = []
    for measure, rows in comparisons.items():
        head = [measure, "mean [95 %]", "SE, queries", *(["mean ± SE, folds"] if with_folds else [])]
        if not single:
            head += ["difference [95 %]", "d", "p", "p corrected", "won/tied/lost", "detectable"]
        blocks.append([cells(head), *(_row(row, with_folds, single) for row in rows)])
    legend = _legend(with_folds, len(rows_of_first) - 1, baseline, test, correction)
    return Table(
        f"Comparison over {averaged_over}", blocks, [*legend, *measure_notes(comparisons)], notes, of_runs=True
    )


def _row(row: RunComparison, with_folds: bool, single: bool) -> list[Cell]:
    means = [Cell(row.run), Cell(f"{row.mean:.4f}{_interval(row.low, row.high)}", row.best and not single)]
    means.append(Cell(_number(row.error)))
    if with_folds:
        means.append(Cell(format_mean(row.fold_mean, row.fold_error)))
    if single:
        return means
    if row.is_reference:
        return [*means, Cell("reference"), *[Cell("")] * 5]
    mark = "" if not row.significant else "↑" if row.difference > 0 else "↓"
    return [
        *means,
        Cell(f"{row.difference:+.4f}{_interval(row.difference_low, row.difference_high, '+')}", mark=mark),
        Cell(_number(row.effect, "+.2f")),
        Cell(_p(row.p)),
        Cell(_p(row.p_corrected)),
        Cell(f"{row.wins}/{row.ties}/{row.losses}"),
        Cell(_number(row.detectable)),
    ]


def _legend(with_folds: bool, others: int, baseline: str | None, test: str, correction: str) -> list[str]:
    """`others` is the number of runs besides the reference."""
    errors = "the queries and over the folds' means" if with_folds else "the queries"
    intervals = (
        f"[{CONFIDENCE:.0%}]: percentiles of the means of {RESAMPLES:,} bootstrap resamples of the queries. "
        f"SE: standard error, s / sqrt(n), over {errors}."
    )
    if not others:
        return [intervals]
    label, note = CORRECTIONS[correction].label, TESTS[test].note
    runs = "1 other run" if others == 1 else f"{others} other runs"
    correction_line = f"corrected by {label} over the {runs} of each measure" if label else "not corrected"
    return [
        intervals,
        f"{{best}}: best. Differences are to {baseline or 'the best'}, over the queries; ↑, ↓: p corrected < {LEVEL}.",
        "d: Cohen's d, the mean of the differences over their standard deviation. "
        f"p: two-sided paired {TESTS[test].label}{f', {note}' if note else ''}, {correction_line}.",
        "detectable: the smallest difference that a paired t-test at the corrected level detects on as many queries "
        f"with a power of {POWER:.0%}, if differences vary as these do.",
    ]


def _interval(low: float, high: float, sign: str = "") -> str:
    return "" if math.isnan(low) else f" [{low:{sign}.4f}, {high:{sign}.4f}]"


def _number(value: float, form: str = ".4f") -> str:
    return "" if math.isnan(value) else format(value, form)


def _p(value: float) -> str:
    return "" if math.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"
