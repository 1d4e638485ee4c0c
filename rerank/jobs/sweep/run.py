"""`rerank sweep`: trains a grid of settings × folds in parallel; each cell is an ordinary experiment."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rerank.config import Config
from rerank.data.folds import FINAL
from rerank.evaluation.measures import measure_name
from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables.table import aligned, format_mean
from rerank.jobs.sweep.grid import cells, read_grid
from rerank.jobs.sweep.jobs import prepare_shared, train_jobs, unfinished_jobs
from rerank.runs.experiment_results import FoldResults
from rerank.runs.layout import CollectionFolder
from rerank.runs.settings import read_toml, save_settings
from rerank.tasks.checks import check_training
from rerank.utils.cluster import LOCAL, expect_engine
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.progress import progress

BEST = 20
"""How many cells the table of the best ones has."""


def run_sweep(
    path: Path, flags: Sequence[str], config: Path | None, fold: str, workers: int | None, engine: str = LOCAL
) -> bool:
    """Trains the unfinished cells of the grid in `path`, prints the best ones, and returns whether none failed.

    `flags` apply to all cells; `config` and `fold` replace those of the grid. `engine` is this machine or a Ray cluster
    (see `work_on_ray`). A cell whose training fails is reported at the end and does not stop the others. Raises
    UserError for invalid input before anything is trained.
    """
    expect_engine(engine)
    grid = read_grid(path)
    base_file = config or grid.config
    base = read_toml(base_file, "--config " if config else f"{path}: config: ") if base_file else {}
    configs = cells(grid, base, str(base_file), flags)
    for cell in configs:
        _check(cell)
    if (fold or grid.fold) == FINAL:
        raise UserError(f"--fold {FINAL}: a sweep compares models on folds; expected the name of a fold, or all")
    shared = prepare_shared(configs, fold or grid.fold)
    for cell, of_cell in zip(configs, shared, strict=True):
        experiment = of_cell.folder.experiment(cell.output.name)
        with locked(experiment.path, "settings"):
            save_settings(cell, experiment.settings)
    jobs = [job for cell, of_cell in zip(configs, shared, strict=True) for job in unfinished_jobs(cell, of_cell)]
    failed = train_jobs(jobs, sum(len(of_cell.folds) for of_cell in shared), engine, workers)
    for folder in dict.fromkeys(of_cell.folder for of_cell in shared):
        in_folder = [(c, s) for c, s in zip(configs, shared, strict=True) if s.folder == folder]
        measure = in_folder[0][0].training.measure
        print(best_cells(folder.path, [c.output.name for c, _ in in_folder], in_folder[0][1].folds, measure))
    for job, error in failed:
        print(f"failed: {job.config.output.name}, fold {job.fold}: {error}", file=sys.stderr)
    return not failed


def best_cells(folder: Path, names: Sequence[str], folds: Sequence[str], measure: str) -> str:
    """A table of the cells with the best mean over the validation queries, among those that have all these folds."""
    if measure == "loss":  # losses cannot be compared with each other
        measure = "nDCG"
    measure = measure_name(measure)
    means = {}
    for name in progress(names, len(names), "validation values"):
        cell = CollectionFolder(folder).experiment(name)
        values = [
            value for fold in folds if (value := FoldResults(cell.fold(fold)).validation_mean(measure)) is not None
        ]
        if len(values) == len(folds):
            means[name] = mean_and_error(values)
    best = sorted(means, key=lambda name: -means[name][0])[:BEST]
    head = f"{folder}: the best of {len(means)} finished cells"
    over = f"mean ± standard error over {len(folds)} folds" if len(folds) > 1 else f"fold {folds[0]}"
    rows = [["cell", f"{measure} of validation"], *([name, format_mean(*means[name])] for name in best)]
    return f"{head}, {over}\n\n{aligned(rows)}\n"


def _check(cell: Config) -> None:
    try:
        check_training(cell)
    except UserError as error:
        raise UserError(f"cell {cell.output.name}: {error}") from error
