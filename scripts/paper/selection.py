"""Which cells the validation queries choose, and how the chosen ones do on the test queries."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean
from typing import Any, NamedTuple

from rerank.evaluation.significance import corrected, paired_test
from rerank.experiments.sweep.results import Cell, Results

Chosen = dict[tuple[str, Any], Cell]
"""(fold, seed) -> the cell chosen there."""


class Reached(NamedTuple):
    """`means` over test queries, one a fold (one a seed, where there is one fold); `of_query` is query_id -> value."""

    means: list[float]
    of_query: dict[str, float]


def choose(results: Results, cells: Iterable[Cell], measure: str) -> Chosen:
    """For each fold and seed, the cell with the best validation value; the first by name of several."""
    best: dict[tuple[str, Any], tuple[float, Cell]] = {}
    for cell in cells:
        for fold in results.folds:
            if results.has(cell.name, fold):
                place, value = (fold, cell.setting("training.seed")), results.validation(cell.name, fold, measure)
                if place not in best or value > best[place][0]:
                    best[place] = value, cell
    return {place: cell for place, (_, cell) in sorted(best.items(), key=lambda item: str(item[0]))}


def reached(results: Results, chosen: Chosen, measure: str) -> Reached:
    """The test values of the chosen cells; a query's value is the mean over seeds."""
    means, of_query = defaultdict(list), defaultdict(list)
    for (fold, seed), cell in chosen.items():
        values = results.test(cell.name, fold)[measure]
        means[fold if len(results.folds) > 1 else seed].append(fmean(values.values()))
        for query_id, value in values.items():
            of_query[query_id].append(value)
    return Reached([fmean(values) for values in means.values()], {q: fmean(values) for q, values in of_query.items()})


def worse_than_best(rows: dict[str, Reached], level: float) -> tuple[set[str], set[str]]:
    """The rows with the best mean, and those that a two-sided paired t-test over the queries finds worse than it.

    Bonferroni's correction is for the number of comparisons with the best.
    """
    means = {name: fmean(row.means) for name, row in rows.items()}
    best = max(means, key=lambda name: means[name])
    values = {name: [row.of_query[query_id] for query_id in rows[best].of_query] for name, row in rows.items()}
    others = [name for name in rows if name != best]
    p_values = corrected([paired_test(values[name], values[best]) for name in others])
    worse = {
        name
        for name, p in zip(others, p_values, strict=True)
        if p < level and fmean(values[name]) < fmean(values[best])
    }
    return {name for name in rows if means[name] == means[best]}, worse
