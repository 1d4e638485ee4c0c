"""Selects cells by their validation values and collects the test values of the selected ones."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean
from typing import Any, NamedTuple

from rerank.data.folds import read_folds
from rerank.data.runs import read_run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.run_comparison import ComparisonSettings, compare_measurements
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.layout import CollectionFolder
from rerank.experiments.runs.results import Results

Selected = dict[tuple[str, Any], ExperimentResults]
"""(fold, seed) -> the cell selected there."""


class TestResult(NamedTuple):
    """`means` over the test queries, one per fold, or one per seed of a single fold.

    `values` is query_id -> value.
    """

    means: list[float]
    values: dict[str, float]


def select_by_validation(cells: Iterable[ExperimentResults], measure: str) -> Selected:
    """For each fold and seed, the cell with the best validation mean; the first by name of several."""
    best: dict[tuple[str, Any], tuple[float, ExperimentResults]] = {}
    for cell in cells:
        for fold in cell.folds:
            key, mean = (fold.name, cell.setting("training.seed")), fold.validation_mean(measure)
            if mean is not None and (key not in best or mean > best[key][0]):
                best[key] = mean, cell
    return {key: cell for key, (_, cell) in sorted(best.items(), key=lambda item: str(item[0]))}


def collect_test_result(results: Results, selected: Selected, measure: str) -> TestResult:
    """The test values of the selected cells; a query's value is the mean over seeds."""
    means, values = defaultdict(list), defaultdict(list)
    folds = {fold.name: fold for fold in read_folds(CollectionFolder(results.where).folds)}
    for (fold, seed), cell in selected.items():
        run = read_run(cell.folder.fold(fold).test_run)
        of_fold = evaluate(results.judged(folds[fold].test), run, [measure])[measure]
        means[fold if len(folds) > 1 else seed].append(fmean(of_fold.values()))
        for query_id, value in of_fold.items():
            values[query_id].append(value)
    return TestResult([fmean(each) for each in means.values()], {q: fmean(each) for q, each in values.items()})


def compare_with_best(rows: dict[str, TestResult]) -> tuple[set[str], set[str]]:
    """The rows with the best mean, as the table shows it, and the rows that are significantly worse.

    The test is a two-sided paired t-test over the queries, with Bonferroni's correction for the number of comparisons.
    """
    means = {name: fmean(row.means) for name, row in rows.items()}
    best = max(means, key=lambda name: means[name])
    measurements = {name: {"": row.values} for name, row in rows.items()}
    (comparisons,) = compare_measurements(measurements, settings=ComparisonSettings(best)).values()
    worse = {row.run for row in comparisons if row.mark() == "↓"}
    return {name for name in rows if means[name] == means[best]}, worse
