"""`rerank sweep`: trains a grid of settings × folds in parallel; each cell is an ordinary experiment."""

import random
import sys
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from rerank.config import Config, validate
from rerank.data.folds import FINAL
from rerank.evaluation.measures import measure_name
from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables.table import aligned, format_mean
from rerank.experiments.checks import check_labels
from rerank.experiments.sweep.grid import cells, read_grid
from rerank.experiments.sweep.shared import Shared, prepare_shared
from rerank.experiments.train import train_folds
from rerank.runs.claims import claim
from rerank.runs.layout import CollectionFolder
from rerank.runs.results import CollectionResults
from rerank.runs.settings import read_toml, save_settings
from rerank.training.device import visible_gpus
from rerank.training.losses import open_loss
from rerank.utils.cluster.jobs import LOCAL, expect_engine, work_on_ray
from rerank.utils.cores import count_cores
from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress
from rerank.utils.workers import failures, work

BEST = 20
"""How many cells the table of the best ones has."""


class Job(NamedTuple):
    """One fold of one cell."""

    config: Config
    fold: str


def run_sweep(
    path: Path, flags: Sequence[str], config: Path | None, fold: str, workers: int | None, engine: str = LOCAL
) -> bool:
    """Trains the unfinished cells of the grid in `path`, prints the best ones, and returns whether none failed.

    `flags` apply to all cells; `config` and `fold` replace those of the grid. `engine` is this machine or a Ray cluster
    (see `work_on_ray`). A cell whose training fails is reported at the end and does not stop the others. Raises
    UserError for invalid input before anything is trained.
    """
    if workers is not None and workers < 1:
        raise UserError(f"--workers: got {workers}, expected 1 or more")
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
        claim(experiment, partial(save_settings, cell, experiment.settings)).release()
    jobs = [
        Job(cell, name)
        for cell, of_cell in zip(configs, shared, strict=True)
        for name in of_cell.folds
        if not _finished(of_cell, cell.output.name, name)
    ]
    failed = _train_all(jobs, workers, engine, sum(len(of_cell.folds) for of_cell in shared))
    for folder in dict.fromkeys(of_cell.folder for of_cell in shared):
        in_folder = [(c, s) for c, s in zip(configs, shared, strict=True) if s.folder == folder]
        measure = in_folder[0][0].training.measure
        print(best_cells(folder.path, [c.output.name for c, _ in in_folder], in_folder[0][1].folds, measure))
    for job, error in failed:
        print(f"failed: {job.config.output.name}, fold {job.fold}: {error}", file=sys.stderr)
    return not failed


def best_cells(folder: Path, names: Sequence[str], folds: Sequence[str], measure: str) -> str:
    """A table of the cells with the best mean over the validation queries, among those that have all these folds."""
    results = CollectionResults(CollectionFolder(folder))
    if measure == "loss":  # losses cannot be compared with each other
        measure = "nDCG"
    measure = measure_name(measure)
    finished = [name for name in names if all(results.has_fold(name, fold) for fold in folds)]
    means = {
        name: mean_and_error([results.validation_mean(name, fold, measure) for fold in folds])
        for name in progress(finished, len(finished), "validation values")
    }
    best = sorted(means, key=lambda name: -means[name][0])[:BEST]
    head = f"{folder}: the best of {len(finished)} finished cells"
    over = f"mean ± standard error over {len(folds)} folds" if len(folds) > 1 else f"fold {folds[0]}"
    rows = [["cell", f"{measure} of validation"], *([name, format_mean(*means[name])] for name in best)]
    return f"{head}, {over}\n\n{aligned(rows)}\n"


def _check(cell: Config) -> None:
    try:
        validate(cell)
        open_loss(cell.loss)
        check_labels(cell)
    except UserError as error:
        raise UserError(f"cell {cell.output.name}: {error}") from error


def _finished(shared: Shared, name: str, fold: str) -> bool:
    """Whether the fold has its results, and all.run exists if all folds have; the last fold to end writes it."""
    experiment = shared.folder.experiment(name)
    folder = experiment.fold(fold)
    if not folder.finished or not folder.manifest.exists():
        return False
    return experiment.all_run.exists() or not all(experiment.fold(other).finished for other in shared.all_folds)


def _train_all(jobs: list[Job], workers: int | None, engine: str, total: int) -> list[tuple[Job, str]]:
    """Trains all jobs and returns those that failed, with the reason."""
    log.info(f"{total} folds of cells, {total - len(jobs)} of them finished already")
    if not jobs:
        return []
    random.Random(0).shuffle(jobs)  # mixes quick and slow cells, so that the estimated time is right from the start
    ended = _ended(jobs, workers, engine)
    return failures(ended, len(jobs), "sweep", lambda job: f"{job.config.output.name}, fold {job.fold}")


def _ended(jobs: list[Job], workers: int | None, engine: str) -> Generator[tuple[Job, str], None, None]:
    """Yields each job when it has ended, with its error; by default there is a worker for each GPU, else each core.

    Where the cells do not choose a GPU themselves, each worker has one of its own.
    """
    devices = {job.config.training.device for job in jobs}
    if engine != LOCAL:
        folder = Path(jobs[0].config.output.folder)
        return work_on_ray(engine, partial(_train, None), jobs, folder, workers, gpus=devices != {"cpu"})
    gpus, cores = visible_gpus(), count_cores()
    own = gpus if devices <= {"auto", "cuda"} else []
    default = cores if not gpus or devices == {"cpu"} else len(own) or 1
    workers = min(workers or default, len(jobs))
    return work(partial(_train, max(1, cores // workers)), jobs, workers, own)


def _train(threads: int | None, job: Job) -> None:
    """Trains a job, with as many threads as that, or as many as torch has been told by the environment."""
    if threads is not None:
        torch.set_num_threads(min(torch.get_num_threads(), threads))
    train_folds(job.config, job.fold)
