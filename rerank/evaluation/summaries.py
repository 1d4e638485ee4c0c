"""Measures whose value over all queries is not the mean: trec_eval's numbers are summed, gm_ is a geometric mean."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from rerank.evaluation.measures import GEOMETRIC, SUMMED, family

if TYPE_CHECKING:
    from rerank.evaluation.run_comparison import RunComparison


def summarised(rows: "list[RunComparison]", queries: int) -> "list[RunComparison]":
    """The comparisons of the runs on one measure, from means over the queries to what trec_eval reports.

    A number of queries or documents becomes the sum over the `queries`, whatever the folds. The logarithms of gm_map
    and gm_bpref become geometric means, with standard errors by the delta method and without intervals of their
    differences. Tests and effect sizes stay those of the values of the queries.
    """
    name = family(rows[0].measure)
    if name in SUMMED:
        return [_summed(row, queries) for row in rows]
    if name in GEOMETRIC:
        reference = next(row for row in rows if row.is_reference)
        return [_geometric(row, reference.mean) for row in rows]
    return rows


def summary_notes(measures: list[str]) -> list[str]:
    """What the tables say of these measures; none if all are means."""
    summed = [measure for measure in measures if family(measure) in SUMMED]
    geometric = [measure for measure in measures if family(measure) in GEOMETRIC]
    notes = [f"{', '.join(summed)}: the sum over the queries, not the mean."] if summed else []
    return [*notes, f"{', '.join(geometric)}: the geometric mean over the queries."] if geometric else notes


def _summed(row: "RunComparison", queries: int) -> "RunComparison":
    total, error = queries * row.mean, queries * row.error
    with_folds = not math.isnan(row.fold_mean)
    return replace(
        row,
        mean=total,
        error=error,
        fold_mean=total if with_folds else math.nan,
        fold_error=error if with_folds else math.nan,
        low=queries * row.low,
        high=queries * row.high,
        difference=queries * row.difference,
        difference_low=queries * row.difference_low,
        difference_high=queries * row.difference_high,
        detectable=queries * row.detectable,
    )


def _geometric(row: "RunComparison", reference_mean: float) -> "RunComparison":
    """`reference_mean` is the mean logarithm of the run that the others are compared with."""
    mean, fold_mean = math.exp(row.mean), math.exp(row.fold_mean)
    return replace(
        row,
        mean=mean,
        error=mean * row.error,
        fold_mean=fold_mean,
        fold_error=fold_mean * row.fold_error,
        low=math.exp(row.low),
        high=math.exp(row.high),
        difference=math.nan if row.is_reference else mean - math.exp(reference_mean),
        difference_low=math.nan,
        difference_high=math.nan,
        detectable=math.nan,
    )
