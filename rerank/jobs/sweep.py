"""Sweeps: a grid of settings, whose cells are ordinary experiments, and their folds trained side by side."""

import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from rerank.config import Config
from rerank.data.folds import FINAL
from rerank.evaluation.measures import measure_name
from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables.table import aligned, format_mean
from rerank.jobs.grid import cells, read_grid
from rerank.jobs.train import open_experiment, train_folds
from rerank.runs.experiment_results import FoldResults
from rerank.runs.layout import CollectionFolder, ExperimentFolder
from rerank.runs.settings import read_toml, save_settings
from rerank.tasks.checks import check_training
from rerank.tasks.folds import drawing_flags
from rerank.training.device import expect_one_process, visible_gpus
from rerank.utils.cluster import LOCAL, expect_engine, work_on_ray
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.parallel import count_cores
from rerank.utils.progress import log, progress
from rerank.utils.workers import failures, work

OWN = ("loss", "lists", "training", "output")
"""The sections that nothing shared depends on."""
BEST = 20
"""How many cells the table of the best ones has."""


class Job(NamedTuple):
    """One fold of an experiment, which is called a cell in a sweep."""

    config: Config
    fold: str


class Shared(NamedTuple):
    """The collection's folder, and the names of the folds to train and of all folds."""

    folder: CollectionFolder
    folds: list[str]
    all_folds: list[str]


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
        try:
            check_training(cell)
        except UserError as error:
            raise UserError(f"cell {cell.output.name}: {error}") from error
    if (fold or grid.fold) == FINAL:
        raise UserError(f"--fold {FINAL}: a sweep compares models on folds; expected the name of a fold, or all")
    shared = _prepare_shared(configs, fold or grid.fold)
    jobs = []
    for cell, of_cell in zip(configs, shared, strict=True):
        experiment = of_cell.folder.experiment(cell.output.name)
        with locked(experiment.path, "settings"):
            save_settings(cell, experiment.settings)
        jobs += _unfinished_jobs(cell, of_cell)
    failed = _train_jobs(jobs, sum(len(of_cell.folds) for of_cell in shared), engine, workers)
    for folder in dict.fromkeys(of_cell.folder for of_cell in shared):
        in_folder = [(c, s) for c, s in zip(configs, shared, strict=True) if s.folder == folder]
        measure = in_folder[0][0].training.measure
        print(best_cells(folder.path, [c.output.name for c, _ in in_folder], in_folder[0][1].folds, measure))
    for job, reason in failed:
        print(f"failed: {job.config.output.name}, fold {job.fold}: {reason}", file=sys.stderr)
    return not failed


def best_cells(folder: Path, names: Sequence[str], folds: Sequence[str], measure: str) -> str:
    """A table of the cells with the best mean over the validation queries, among those that have all these folds."""
    measure = measure_name("nDCG" if measure == "loss" else measure)  # losses cannot be compared with each other
    means = {}
    for name in progress(names, len(names), "validation values"):
        results = [FoldResults(CollectionFolder(folder).experiment(name).fold(fold)) for fold in folds]
        values = [value for fold in results if (value := fold.validation_mean(measure)) is not None]
        if len(values) == len(folds):
            means[name] = mean_and_error(values)
    best = sorted(means, key=lambda name: -means[name][0])[:BEST]
    head = f"{folder}: the best of {len(means)} finished cells"
    over = f"mean ± standard error over {len(folds)} folds" if len(folds) > 1 else f"fold {folds[0]}"
    rows = [["cell", f"{measure} of validation"], *([name, format_mean(*means[name])] for name in best)]
    return f"{head}, {over}\n\n{aligned(rows)}\n"


def train_on_cluster(config: Config, fold: str, engine: str) -> tuple[ExperimentFolder, dict[str, str]]:
    """Trains the fold of that name, or "all", on the Ray cluster `engine`: a sweep of one cell (`train --on ray`).

    Returns the folder of the experiment, and the folds that failed, with the reason; the same command trains them
    again. Raises UserError as `train_folds` and `work_on_ray` do.
    """
    expect_engine(engine)
    (shared,) = _prepare_shared([config], fold)
    failed = _train_jobs(_unfinished_jobs(config, shared), len(shared.folds), engine)
    return shared.folder.experiment(config.output.name or config.loss.name), {job.fold: error for job, error in failed}


def _prepare_shared(configs: Sequence[Config], fold: str) -> list[Shared]:
    """Retrieves, pre-trains and tokenises; for each experiment, what it shares with those that differ in OWN alone."""
    prepared: dict[str, Shared] = {}
    shared = []
    for config in configs:
        drawing = [config.training.validate_queries, config.training.seed] if drawing_flags(config) else []
        key = str([values for section, values in asdict(config).items() if section not in OWN] + drawing)
        if key not in prepared:
            experiment = open_experiment(config, fold)
            expect_one_process(experiment.accelerator, "training in parallel", ", with --workers N or --on ray")
            experiment.dataset.task(experiment.folds[0], experiment.accelerator)  # writes the token store
            experiment.accelerator.free_memory()
            names = [part.name for part in experiment.folds]
            prepared[key] = Shared(experiment.dataset.folder, names, experiment.dataset.fold_names)
        shared.append(prepared[key])
    return shared


def _unfinished_jobs(config: Config, shared: Shared) -> list[Job]:
    """The folds without results, or with results but without all.run, which the last fold to end writes."""
    experiment = shared.folder.experiment(config.output.name or config.loss.name)
    finished = {name: experiment.fold(name).finished for name in [*shared.all_folds, *shared.folds]}
    joined = experiment.all_run.exists() or not all(finished[name] for name in shared.all_folds)
    return [
        Job(config, name)
        for name in shared.folds
        if not (finished[name] and experiment.fold(name).manifest.exists() and joined)
    ]


def _train_jobs(jobs: list[Job], total: int, engine: str, workers: int | None = None) -> list[tuple[Job, str]]:
    """Trains all jobs, on this machine or a Ray cluster, and returns those that failed, with the reason.

    `total` counts the finished ones too. On this machine there is by default a worker for each GPU, else each core;
    where the cells do not choose a GPU themselves, each worker has one of its own.
    """
    log.info(f"{total} folds, {total - len(jobs)} of them finished already")
    if not jobs:
        return []
    random.Random(0).shuffle(jobs)  # mixes quick and slow cells, so that the estimated time is right from the start
    devices = {job.config.training.device for job in jobs}
    if engine != LOCAL:
        ended = work_on_ray(engine, partial(_train, None), jobs, workers, gpus=devices != {"cpu"})
    else:
        gpus, cores = visible_gpus(), count_cores()
        own = gpus if devices <= {"auto", "cuda"} else []
        default = cores if not gpus or devices == {"cpu"} else len(own) or 1
        workers = min(workers or default, len(jobs))
        ended = work(partial(_train, max(1, cores // workers)), jobs, workers, own)
    return failures(ended, len(jobs), "training", lambda job: f"{job.config.output.name}, fold {job.fold}".lstrip(", "))


def _train(threads: int | None, job: Job) -> None:
    """Trains a job, with as many threads as that, or as many as torch has been told by the environment."""
    if threads is not None:
        torch.set_num_threads(min(torch.get_num_threads(), threads))
    train_folds(job.config, job.fold)
