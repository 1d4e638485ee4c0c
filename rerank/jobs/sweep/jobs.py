"""Folds of experiments, trained side by side: what they share is prepared first, then each is a job of a worker."""

import random
from collections.abc import Generator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from rerank.config import Config
from rerank.jobs.train import open_experiment, train_folds
from rerank.runs.layout import CollectionFolder, ExperimentFolder
from rerank.tasks.folds import drawing_flags
from rerank.training.device import expect_one_process, visible_gpus
from rerank.utils.cluster import LOCAL, expect_engine, work_on_ray
from rerank.utils.parallel import count_cores
from rerank.utils.progress import log
from rerank.utils.workers import failures, work

OWN = ("loss", "lists", "training", "output")
"""The sections that nothing shared depends on."""


class Job(NamedTuple):
    """One fold of an experiment, which is called a cell in a sweep."""

    config: Config
    fold: str


class Shared(NamedTuple):
    """The collection's folder, and the names of the folds to train and of all folds."""

    folder: CollectionFolder
    folds: list[str]
    all_folds: list[str]


def prepare_shared(configs: Sequence[Config], fold: str) -> list[Shared]:
    """Retrieves, pre-trains and tokenises; for each experiment, what it shares with those that differ in OWN alone.

    Raises UserError for invalid input.
    """
    prepared: dict[str, Shared] = {}
    shared = []
    for config in configs:
        drawing = [config.training.validate_queries, config.training.seed] if drawing_flags(config) else []
        key = str([values for section, values in asdict(config).items() if section not in OWN] + drawing)
        if key not in prepared:
            prepared[key] = _prepare(config, fold)
        shared.append(prepared[key])
    return shared


def _prepare(config: Config, fold: str) -> Shared:
    experiment = open_experiment(config, fold)
    expect_one_process(experiment.accelerator, "training in parallel", ", with --workers N or --on ray")
    experiment.dataset.task(experiment.folds[0], experiment.accelerator)  # writes the token store
    experiment.accelerator.free_memory()
    names = [part.name for part in experiment.folds]
    return Shared(experiment.dataset.folder, names, experiment.dataset.fold_names)


def unfinished_jobs(config: Config, shared: Shared) -> list[Job]:
    """The folds without results, or with results but without all.run, which the last fold to end writes."""
    experiment = shared.folder.experiment(config.output.name or config.loss.name)
    finished = {name: experiment.fold(name).finished for name in [*shared.all_folds, *shared.folds]}
    joined = experiment.all_run.exists() or not all(finished[name] for name in shared.all_folds)
    return [
        Job(config, name)
        for name in shared.folds
        if not (finished[name] and experiment.fold(name).manifest.exists() and joined)
    ]


def train_jobs(jobs: list[Job], total: int, engine: str, workers: int | None = None) -> list[tuple[Job, str]]:
    """Trains all jobs, on this machine or a Ray cluster, and returns those that failed, with the reason.

    `total` counts the finished ones too. On this machine there is by default a worker for each GPU, else each core.
    Raises UserError as `work_on_ray` does.
    """
    log.info(f"{total} folds, {total - len(jobs)} of them finished already")
    if not jobs:
        return []
    random.Random(0).shuffle(jobs)  # mixes quick and slow cells, so that the estimated time is right from the start
    ended = _ended(jobs, workers, engine)
    return failures(ended, len(jobs), "training", lambda job: f"{job.config.output.name}, fold {job.fold}".lstrip(", "))


def train_on_cluster(config: Config, fold: str, engine: str) -> tuple[ExperimentFolder, dict[str, str]]:
    """Trains the fold of that name, or "all", on the Ray cluster `engine`: a sweep of one cell (`train --on ray`).

    Returns the folder of the experiment, and the folds that failed, with the reason; the same command trains them
    again. Raises UserError as `train_folds` and `work_on_ray` do.
    """
    expect_engine(engine)
    (shared,) = prepare_shared([config], fold)
    failed = train_jobs(unfinished_jobs(config, shared), len(shared.folds), engine)
    return shared.folder.experiment(config.output.name or config.loss.name), {job.fold: error for job, error in failed}


def _ended(jobs: list[Job], workers: int | None, engine: str) -> Generator[tuple[Job, str], None, None]:
    """Yields each job when it has ended, with its error.

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
