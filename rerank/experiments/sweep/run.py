"""`rerank sweep`: a grid of settings × folds, trained in parallel, each cell an ordinary experiment."""

import random
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from rerank.config import Config, validate
from rerank.errors import UserError
from rerank.experiments.sweep.grid import cells, read_grid
from rerank.experiments.sweep.results import best_cells
from rerank.experiments.sweep.shared import Shared, prepare_shared
from rerank.experiments.train import train_folds
from rerank.runs.settings import read_toml, save_settings
from rerank.training.losses import open_loss
from rerank.utils.cores import count_cores
from rerank.utils.progress import log, progress
from rerank.utils.workers import work


class Job(NamedTuple):
    """One fold of one cell."""

    config: Config
    fold: str


def run_sweep(path: Path, flags: Sequence[str], config: Path | None, fold: str, workers: int | None) -> bool:
    """Trains what is not there yet of the grid in `path`, prints the best cells, and says whether nothing failed.

    `flags` hold for all cells, `config` and `fold` stand in for those of the grid. A cell whose training fails is
    reported at the end and does not stop the others. Raises UserError, before anything starts, for what the user can
    mend.
    """
    if workers is not None and workers < 1:
        raise UserError(f"--workers: got {workers}, expected 1 or more")
    grid = read_grid(path)
    below = config or grid.config
    base = read_toml(below, "--config " if config else f"{path}: config: ") if below else {}
    configs = cells(grid, base, str(below), flags)
    for cell in configs:
        _check(cell)
    shared = prepare_shared(configs, fold or grid.fold)
    for cell, of_cell in zip(configs, shared, strict=True):
        save_settings(cell, of_cell.folder / cell.output.name / "config.toml")
    jobs = [
        Job(cell, name)
        for cell, of_cell in zip(configs, shared, strict=True)
        for name in of_cell.folds
        if not _finished(of_cell, cell.output.name, name)
    ]
    failed = _train_all(jobs, workers, sum(len(of_cell.folds) for of_cell in shared))
    for folder in dict.fromkeys(of_cell.folder for of_cell in shared):
        of_folder = [(c, s) for c, s in zip(configs, shared, strict=True) if s.folder == folder]
        measure = of_folder[0][0].training.measure
        print(best_cells(folder, [c.output.name for c, _ in of_folder], of_folder[0][1].folds, measure))
    for job, error in failed:
        print(f"failed: {job.config.output.name}, fold {job.fold}: {error.strip()}", file=sys.stderr)
    return not failed


def _check(cell: Config) -> None:
    try:
        validate(cell)
        open_loss(cell.loss)
    except UserError as error:
        raise UserError(f"cell {cell.output.name}: {error}") from error


def _finished(shared: Shared, name: str, fold: str) -> bool:
    """Whether the fold has its results, and the experiment its all.run, which the fold that ends last writes."""
    folder = shared.folder / name
    if not all((folder / f"fold{fold}" / file).exists() for file in ("test.run", "manifest.json")):
        return False
    whole = all((folder / f"fold{other}" / "test.run").exists() for other in shared.all_folds)
    return not whole or (folder / "all.run").exists()


def _train_all(jobs: list[Job], workers: int | None, of: int) -> list[tuple[Job, str]]:
    """Trains all jobs and returns those that failed, with why."""
    log.info(f"{of} folds of cells, {of - len(jobs)} of them finished already")
    if not jobs:
        return []
    cores = count_cores()
    workers = min(workers or (1 if torch.cuda.is_available() else cores), len(jobs))
    random.Random(0).shuffle(jobs)  # quick and slow cells mixed, so that the time left is right from the beginning
    failed: list[tuple[Job, str]] = []
    with closing(work(partial(_train, max(1, cores // workers)), jobs, workers)) as ended:
        for job, error in progress(ended, len(jobs), "sweep", lambda: f"{len(failed)} failed" if failed else ""):
            if error:
                failed.append((job, error))
                log.info(f"{job.config.output.name}, fold {job.fold} failed: {error.strip().splitlines()[-1]}")
    return failed


def _train(threads: int, job: Job) -> None:
    torch.set_num_threads(min(torch.get_num_threads(), threads))
    train_folds(job.config, job.fold)
