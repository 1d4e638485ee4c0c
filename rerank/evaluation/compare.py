"""Every run beside a baseline or the best one, measure by measure: what all views of `rerank eval` show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rerank.errors import UserError, nearest
from rerank.evaluation.significance import (
    bootstrap_intervals,
    cohens_d,
    corrected,
    detectable,
    mean_and_error,
    paired_test,
)
from rerank.types import Measurements

LEVEL = 0.05


@dataclass(frozen=True)
class Compared:
    """A run by one measure. `mean` and `error` are over queries, `fold_mean` and `fold_error` over the folds' means.

    The latter are NaN where there are no folds, and `low` to `high`, the interval of the mean, where none were asked
    for. `reference` is the run that it is compared with; the reference itself is no member of the family of tests and
    has NaN from `difference` on. `wins`, `ties` and `losses` count queries; they are None for the reference.
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
        """Whether this is the run that the others are compared with."""
        return self.run == self.reference

    @property
    def shown(self) -> tuple[float, float]:
        """The mean and the standard error that a table shows: over folds where there are any."""
        return (self.mean, self.error) if math.isnan(self.fold_mean) else (self.fold_mean, self.fold_error)

    @property
    def significant(self) -> bool:
        """Whether the difference is found at 5 %, the correction included."""
        return self.p_corrected < LEVEL


def compare(
    rows: dict[str, Measurements],
    folds: Sequence[Sequence[str]] = (),
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
    intervals: bool = False,
) -> dict[str, list[Compared]]:
    """For each measure every run of `rows` (name -> its measurements over the same queries), in their order.

    A run is compared with `baseline`, or without one with the best: the first with the highest mean, which is that of
    the folds' means where `folds` (the query ids of each) are given. The family of tests that `correction` is for holds
    all other runs, by one measure. `intervals` adds those of the bootstrap. Raises UserError where no run is called
    `baseline`.
    """
    if baseline is not None and baseline not in rows:
        raise UserError(f"--baseline {baseline}: no such run; {nearest(baseline, rows)}")
    found = {}
    for measure in next(iter(rows.values())):
        values = {run: of_run[measure] for run, of_run in rows.items()}
        shown = {run: _shown_mean(of_run, folds) for run, of_run in values.items()}
        best = [run for run in values if shown[run] == max(shown.values())]
        found[measure] = _compared(measure, values, folds, best, baseline or best[0], test, correction, intervals)
    return found


def _compared(
    measure: str,
    values: dict[str, dict[str, float]],
    folds: Sequence[Sequence[str]],
    best: list[str],
    reference: str,
    test: str,
    correction: str,
    intervals: bool,
) -> list[Compared]:
    """One measure: `values` are run -> query_id -> value."""
    query_ids = list(values[reference])
    columns = {run: [of_run[query_id] for query_id in query_ids] for run, of_run in values.items()}
    others = [run for run in values if run != reference]
    differences = {run: [a - b for a, b in zip(columns[run], columns[reference], strict=True)] for run in others}
    p_values = [paired_test(columns[run], columns[reference], test) for run in others]
    p_corrected = corrected(p_values, correction)
    level = LEVEL / (1 if correction == "none" else max(1, len(others)))
    ends = [(math.nan, math.nan)] * (len(columns) + len(others))
    if intervals:
        ends = bootstrap_intervals([*columns.values(), *differences.values()])
    found = []
    for (run, column), interval in zip(columns.items(), ends, strict=False):
        of_folds = _fold_mean(values[run], folds)
        plain = Compared(run, measure, *mean_and_error(column), *of_folds, *interval, run in best, reference)
        if run != reference:
            i = others.index(run)
            low, high = ends[len(columns) + i]
            plain = replace(
                plain,
                difference=mean_and_error(differences[run])[0],
                difference_low=low,
                difference_high=high,
                effect=cohens_d(differences[run]),
                p=p_values[i],
                p_corrected=p_corrected[i],
                wins=sum(difference > 0 for difference in differences[run]),
                ties=differences[run].count(0.0),
                losses=sum(difference < 0 for difference in differences[run]),
                detectable=detectable(differences[run], level),
            )
        found.append(plain)
    return found


def _shown_mean(values: dict[str, float], folds: Sequence[Sequence[str]]) -> float:
    return (_fold_mean(values, folds) if folds else mean_and_error(list(values.values())))[0]


def _fold_mean(values: dict[str, float], folds: Sequence[Sequence[str]]) -> tuple[float, float]:
    if not folds:
        return math.nan, math.nan
    return mean_and_error([mean_and_error([values[query_id] for query_id in fold])[0] for fold in folds])
