"""The table of `rerank eval` on the page."""

from rerank.evaluation.tables.table import Cell, Table
from rerank.reports.html.elements import Html, join, table, tag
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults
from rerank.runs.table import compare_files


def scoreboard(results: CollectionResults) -> Html:
    """The table of the experiments all of whose folds are finished, and one a fold of those that are not so far.

    Runs of the first stage stand in the first rows.
    """
    whole = [experiment for experiment in results.experiments if experiment.folder.all_run.is_file()]
    parts = [_of_runs(results, whole, None)] if whole else []
    unfinished = [experiment for experiment in results.experiments if experiment not in whole]
    folds = dict.fromkeys(fold.name for experiment in unfinished for fold in experiment.folds if fold.run)
    if unfinished:
        names = ", ".join(experiment.name for experiment in unfinished)
        parts.append(tag("p", f"Not all folds of {names} are finished: a table for each fold.", class_="quiet"))
    for fold in folds:
        tested = [e for e in results.experiments if any(of.name == fold and of.run for of in e.folds)]
        parts += [tag("h3", f"Fold {fold}"), _of_runs(results, tested, fold)]
    return join(parts)


def _of_runs(results: CollectionResults, experiments: list[ExperimentResults], fold: str | None) -> Html:
    first = [e.first_stage_file for e in experiments if e.first_stage]
    runs = [e.folder.fold(fold).test_run if fold else e.folder.all_run for e in experiments]
    folds = results.folder.folds
    paths = [*dict.fromkeys(first), *runs]
    comparison = compare_files(paths, results.folder.qrels, folds if folds.is_file() else None, fold)
    return as_html(comparison.table())


def as_html(view: Table) -> Html:
    """The title, a table for each block, and the lines below."""
    blocks = []
    for block in view.blocks:
        head, *rows = ([_cell(cell) for cell in row] for row in block)
        blocks.append(table(head, rows))
    below = [*(line.replace("{best}", "bold") for line in view.legend), *view.notes]
    return join([tag("p", view.title), *blocks, tag("p", join(below, Html("<br>")), class_="quiet")])


def _cell(cell: Cell) -> Html:
    return join([tag("strong", cell.text) if cell.best else cell.text, cell.mark])
