"""Tables of compared runs: a summary with marks for significant differences, and one of all details."""

import math
from collections.abc import Sequence

from rerank.evaluation.measures import is_sum
from rerank.evaluation.run_comparison import LEVEL, RunComparison
from rerank.evaluation.significance import CONFIDENCE, CORRECTIONS, RESAMPLES, TESTS
from rerank.evaluation.tables.table import Cell, Table, cells, format_mean

COLUMNS = 5  # as in the paper, whose table has precision above nDCG; more do not fit a terminal
GAIN_NOTE = "nDCG is trec_eval's, with gain rel (the losses have gain 2^rel - 1)."


def summary_table(
    comparisons: dict[str, list[RunComparison]],
    averaged_over: str,
    notes: Sequence[str] = (),
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Table:
    """A block of rows for every five measures.

    `comparisons` are those of `compare_measurements` with the same `baseline`, `test` and `correction`. A dagger marks
    a run that is significantly worse than the best; with a `baseline`, arrows mark runs that are significantly better
    (↑) or worse (↓). `averaged_over` says what the means are over, such as "5 folds, 249 queries".
    """
    runs = [row.run for row in next(iter(comparisons.values()))]
    blocks = []
    for start in range(0, len(comparisons), COLUMNS):
        measures = list(comparisons)[start : start + COLUMNS]
        body = [
            [Cell(run), *(_cell(comparisons[measure][i], len(runs), baseline) for measure in measures)]
            for i, run in enumerate(runs)
        ]
        blocks.append([cells(["run", *measures]), *body])
    legend = [] if len(runs) == 1 else [_marks(len(runs) - 1, baseline, test, correction)]
    return Table(f"Mean ± standard error over {averaged_over}", blocks, [*legend, *_measure_notes(comparisons)], notes)


def _measure_notes(comparisons: dict[str, list[RunComparison]]) -> list[str]:
    """The note on the gain, if trec_eval's nDCG is among the measures, and on measures that are no means."""
    notes = [GAIN_NOTE] if any(measure.partition("@")[0] == "nDCG" for measure in comparisons) else []
    sums = ", ".join(filter(is_sum, comparisons))
    return [*notes, f"{sums}: the sum over the queries, not the mean."] if sums else notes


def _marks(others: int, baseline: str | None, test: str, correction: str) -> str:
    """`others` is the number of runs besides the reference."""
    marks = f"↑, ↓: better, worse than {baseline}" if baseline else "†: worse than the best"
    line, label = f"two-sided paired {TESTS[test].label} over the queries, p < {LEVEL}", CORRECTIONS[correction][0]
    corrected = f", {label} over the {others} other runs" if label and others > 1 else ""
    return f"{{best}}: best. {marks} ({line}{corrected})."


def _cell(row: RunComparison, runs: int, baseline: str | None) -> Cell:
    mark = ""
    if row.significant and row.difference < 0:
        mark = "↓" if baseline else "†"
    elif row.significant and row.difference > 0 and baseline:
        mark = "↑"
    return Cell(format_mean(*row.headline), row.best and runs > 1, mark)


def details_table(
    comparisons: dict[str, list[RunComparison]],
    averaged_over: str,
    notes: Sequence[str] = (),
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Table:
    """A block for each measure, a row for each run.

    The arguments are those of `summary_table`, but that `comparisons` has intervals.
    """
    rows_of_first = next(iter(comparisons.values()))
    with_folds = not any(math.isnan(row.fold_mean) for rows in comparisons.values() for row in rows)
    single = len(rows_of_first) == 1
    blocks = []
    for measure, rows in comparisons.items():
        head = [measure, "mean [95 %]", "SE, queries", *(["mean ± SE, folds"] if with_folds else [])]
        if not single:
            head += ["difference [95 %]", "p", "p corrected", "won/tied/lost"]
        blocks.append([cells(head), *(_row(row, with_folds, single) for row in rows)])
    legend = _legend(with_folds, len(rows_of_first) - 1, baseline, test, correction)
    return Table(f"Comparison over {averaged_over}", blocks, [*legend, *_measure_notes(comparisons)], notes)


def _row(row: RunComparison, with_folds: bool, single: bool) -> list[Cell]:
    means = [Cell(row.run), Cell(f"{row.mean:.4f}{_interval(row.low, row.high)}", row.best and not single)]
    means.append(Cell("" if math.isnan(row.error) else f"{row.error:.4f}"))
    if with_folds:
        means.append(Cell(format_mean(row.fold_mean, row.fold_error)))
    if single:
        return means
    if row.is_reference:
        return [*means, Cell("reference"), *[Cell("")] * 3]
    mark = "" if not row.significant else "↑" if row.difference > 0 else "↓"
    return [
        *means,
        Cell(f"{row.difference:+.4f}{_interval(row.difference_low, row.difference_high, '+')}", mark=mark),
        Cell(_p(row.p)),
        Cell(_p(row.p_corrected)),
        Cell(f"{row.wins}/{row.ties}/{row.losses}"),
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
    label, note = CORRECTIONS[correction][0], TESTS[test].note
    runs = "1 other run" if others == 1 else f"{others} other runs"
    correction_line = f"corrected by {label} over the {runs} of each measure" if label else "not corrected"
    return [
        intervals,
        f"{{best}}: best. Differences are to {baseline or 'the best'}, over the queries; ↑, ↓: p corrected < {LEVEL}.",
        f"p: two-sided paired {TESTS[test].label}{f', {note}' if note else ''}, {correction_line}.",
    ]


def _interval(low: float, high: float, sign: str = "") -> str:
    return "" if math.isnan(low) else f" [{low:{sign}.4f}, {high:{sign}.4f}]"


def _p(value: float) -> str:
    return "" if math.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"
