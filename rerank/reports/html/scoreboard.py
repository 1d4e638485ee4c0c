"""The tables of `rerank eval` on the page."""

from rerank.evaluation.tables.table import Table
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults
from rerank.runs.table import compare_files


def summary(results: CollectionResults) -> Table | None:
    """The experiments all of whose folds are finished, below their first stages; None if there is none."""
    finished = [experiment for experiment in results.experiments if experiment.folder.all_run.is_file()]
    return _table(results, finished, None) if finished else None


def unfinished(results: CollectionResults) -> list[ExperimentResults]:
    """The experiments with unfinished folds."""
    return [experiment for experiment in results.experiments if not experiment.folder.all_run.is_file()]


def fold_tables(results: CollectionResults) -> dict[str, Table]:
    """For each finished fold of an unfinished experiment, a table of all experiments that have finished it."""
    folds = dict.fromkeys(fold.name for experiment in unfinished(results) for fold in experiment.folds if fold.run)
    return {
        name: _table(results, [e for e in results.experiments if any(f.name == name and f.run for f in e.folds)], name)
        for name in folds
    }


def _table(results: CollectionResults, experiments: list[ExperimentResults], fold: str | None) -> Table:
    first = [experiment.first_stage_file for experiment in experiments if experiment.first_stage]
    runs = [e.folder.fold(fold).test_run if fold else e.folder.all_run for e in experiments]
    folds = results.folder.folds
    paths = [*dict.fromkeys(first), *runs]
    return compare_files(paths, results.folder.qrels, folds if folds.is_file() else None, fold).table()
