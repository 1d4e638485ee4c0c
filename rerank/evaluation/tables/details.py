"""The comparison in full: intervals, differences, effect sizes, p-values, and what so many topics could have shown."""

import math
from collections.abc import Sequence

from rerank.evaluation.compare import LEVEL, Compared
from rerank.evaluation.measures import measure_label
from rerank.evaluation.significance import CONFIDENCE, POWER, RESAMPLES
from rerank.evaluation.tables.summary import CORRECTION_NAMES, TEST_NAMES, gain_note
from rerank.evaluation.tables.table import Cell, Table, cells


def details_table(
    compared: dict[str, list[Compared]],
    over: str,
    notes: Sequence[str] = (),
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Table:
    """A block for each measure, a row for each run; `compared` is that of `compare` with intervals.

    `over` says what the means are over, such as "5 folds, 249 topics".
    """
    blocks = []
    with_folds = not any(math.isnan(row.fold_mean) for rows in compared.values() for row in rows)
    alone = len(next(iter(compared.values()))) == 1
    for measure, rows in compared.items():
        head = [measure_label(measure), "mean [95 %]", "SE, topics", *(["mean ± SE, folds"] if with_folds else [])]
        if not alone:
            head += ["difference [95 %]", "d", "p", "p corrected", "won/tied/lost", "detectable"]
        body = [_row(row, with_folds, alone) for row in rows]
        blocks.append([cells(head), *body])
    legend = _legend(with_folds, alone, next(iter(compared.values())), baseline, test, correction)
    return Table(f"Comparison over {over}", blocks, [*legend, *gain_note(compared)], notes)


def _row(row: Compared, with_folds: bool, alone: bool) -> list[Cell]:
    found = [Cell(row.run), Cell(f"{row.mean:.4f}{_interval(row.low, row.high)}", row.best and not alone)]
    found.append(Cell(_number(row.error)))
    if with_folds:
        found.append(Cell(f"{row.fold_mean:.4f} ± {row.fold_error:.4f}"))
    if alone:
        return found
    if row.is_reference:
        return [*found, Cell("reference"), *[Cell("")] * 5]
    mark = "" if not row.significant else "↑" if row.difference > 0 else "↓"
    return [
        *found,
        Cell(f"{row.difference:+.4f}{_interval(row.difference_low, row.difference_high, '+')}", mark=mark),
        Cell(_number(row.effect, "+.2f")),
        Cell(_p(row.p)),
        Cell(_p(row.p_corrected)),
        Cell(f"{row.wins}/{row.ties}/{row.losses}"),
        Cell(_number(row.detectable)),
    ]


def _legend(
    with_folds: bool, alone: bool, rows: Sequence[Compared], baseline: str | None, test: str, correction: str
) -> list[str]:
    errors = "the topics and over the folds' means" if with_folds else "the topics"
    lines = [
        f"[{CONFIDENCE:.0%}]: percentiles of the means of {RESAMPLES:,} bootstrap resamples of the topics. "
        f"SE: standard error, s / sqrt(n), over {errors}."
    ]
    if alone:
        return lines
    family = "for nothing"
    if correction != "none":
        family = f"by {CORRECTION_NAMES[correction]} over the {len(rows) - 1} other runs of each measure"
    draws = f", {RESAMPLES:,} draws" if test == "randomisation" else ""
    return [
        *lines,
        f"{{best}}: best. Differences are to {baseline or 'the best'}, over the topics; ↑, ↓: p corrected < {LEVEL}.",
        "d: Cohen's, the mean of the differences over their standard deviation. "
        f"p: two-sided paired {TEST_NAMES[test]}{draws}, corrected {family}.",
        "detectable: the smallest difference that a paired t-test at the corrected level finds on so many topics with "
        f"a probability of {POWER:.0%}, where the differences vary as these do; a smaller one need not show.",
    ]


def _interval(low: float, high: float, sign: str = "") -> str:
    return "" if math.isnan(low) else f" [{low:{sign}.4f}, {high:{sign}.4f}]"


def _number(value: float, form: str = ".4f") -> str:
    return "" if math.isnan(value) else format(value, form)


def _p(value: float) -> str:
    return "" if math.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"
