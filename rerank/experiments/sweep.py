"""`rerank sweep`: trains a grid of settings; each cell is an experiment, whose folds are trained in parallel."""

import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import torch

from rerank.config import Config
from rerank.data.types import FINAL
from rerank.evaluation.measures import measure_name
from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables import aligned, format_mean
from rerank.experiments.checks import check_training
from rerank.experiments.collection import draws_queries
from rerank.experiments.grid import read_grid
from rerank.experiments.runs.experiment_results import FoldResults
from rerank.experiments.runs.layout import CollectionFolder
from rerank.experiments.runs.settings import save_settings
from rerank.experiments.train import Experiment, open_experiment, train_folds, write_all_run
from rerank.training.device import expect_one_process, visible_gpus
from rerank.training.estimate import Cost, measure
from rerank.utils.cluster import LOCAL, expect_engine, work_on_ray
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.parallel import count_cores, failures, work
from rerank.utils.progress import log, progress, say_how_long

OWN = ("loss", "lists", "training", "output")
"""The sections that shared data (candidates, folds, tokens) do not depend on."""

BEST = 20
"""Rows of the table of the best cells."""


class Job(NamedTuple):
    """A fold of an experiment (a cell of the sweep) to train, and the seconds that its training takes here."""

    config: Config
    fold: str
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.config.experiment}, fold {self.fold}"


class Shared(NamedTuple):
    """What experiments on the same data share: the collection's folder, the folds to train, and the names of all."""

    folder: CollectionFolder
    folds: list[str]
    all_folds: list[str]


class Measured(NamedTuple):
    """The cost of a training with the settings `config`, from which that of others on the same data follows."""

    config: Config
    cost: Cost

    def seconds(self, config: Config) -> float:
        """The seconds of a training with other settings: a list costs as its documents."""
        lists, cost = config.training.lists_per_epoch, self.cost
        share = _documents(config) / _documents(self.config)
        changed = replace(cost, lists=cost.lists if lists == "all" else lists, list_seconds=share * cost.list_seconds)
        return changed.seconds(config.training.epochs)


def run_sweep(
    path: Path, flags: Sequence[str], config: Path | None, fold: str, workers: int | None, engine: str = LOCAL
) -> bool:
    """Trains the unfinished cells of the grid in `path`, prints the best ones, and returns whether none failed.

    `flags` apply to all cells; `config` and `fold` override those of the grid. Raises UserError for wrong settings,
    before any training.
    """
    expect_engine(engine)
    fold_of_grid, configs = read_grid(path, flags, config)
    fold = fold or fold_of_grid
    for cell in configs:
        try:
            check_training(cell)
        except UserError as error:
            raise UserError(f"cell {cell.output.name}: {error}") from error
    if fold == FINAL:
        raise UserError(f"--fold {FINAL}: a sweep compares models on folds; expected the name of a fold, or all")
    shared, failed = train_side_by_side(configs, fold, engine, workers)
    for data in {data.folder: data for data in shared}.values():
        names = [cell.output.name for cell, its in zip(configs, shared, strict=True) if its.folder == data.folder]
        print(best_cells(data.folder.path, names, data.folds, configs[0].training.measure))
    for job, reason in failed:
        print(f"failed: {job.name}: {reason}", file=sys.stderr)
    return not failed


def train_side_by_side(
    configs: Sequence[Config], fold: str, engine: str, workers: int | None = None
) -> tuple[list[Shared], list[tuple[Job, str]]]:
    """Trains the unfinished folds of experiments in parallel, here or on the Ray cluster `engine` (see `work_on_ray`).

    Returns the shared data of each experiment, and the failed folds with the reason. The default number of workers on
    this machine is the number of GPUs, one for each worker unless the settings name a device, or else of cores.
    """
    expect_engine(engine)
    groups: dict[str, list[Config]] = {}
    for config in configs:
        groups.setdefault(_data_of(config), []).append(config)
    shared: dict[str, Shared] = {}
    jobs: list[Job] = []
    for key, group in groups.items():
        experiment = open_experiment(group[0], fold)
        expect_one_process(experiment.accelerator, "training in parallel", ", with --workers N or --on ray")
        dataset = experiment.dataset
        shared[key] = Shared(dataset.folder, [one_fold.name for one_fold in dataset.folds], dataset.fold_names)
        left = [(config, name) for config in group for name in _unfinished(config, shared[key])]
        if left:
            measured = _measured(experiment)
            jobs += [Job(config, name, measured.seconds(config)) for config, name in left]
    total = sum(len(shared[key].folds) * len(group) for key, group in groups.items())
    log.info(f"{total} folds, {total - len(jobs)} of them finished already")
    failed = _train_jobs(jobs, len(configs), engine, workers) if jobs else []
    return [shared[_data_of(config)] for config in configs], failed


def _data_of(config: Config) -> str:
    """A key of the data of an experiment: equal for experiments that differ only in the sections OWN."""
    drawing = [config.training.validate_queries, config.training.seed] if draws_queries(config) else []
    return str([values for section, values in asdict(config).items() if section not in OWN] + drawing)


def _unfinished(config: Config, shared: Shared) -> list[str]:
    """The folds of an experiment that are left to train; saves its settings, and all.run if only that is missing."""
    experiment = shared.folder.experiment(config.experiment)
    with locked(experiment.path, "settings"):
        save_settings(config, experiment.settings)
    left = [name for name in shared.folds if not experiment.fold(name).finished]
    if not left and not experiment.all_run.exists():
        write_all_run(experiment, shared.all_folds, config)
    return left


def _measured(experiment: Experiment) -> Measured:
    """Measures a training of the first fold, whose task also tokenises the documents for all."""
    dataset, accelerator = experiment.dataset, experiment.accelerator
    cost = measure(dataset.task(dataset.folds[0], accelerator), dataset.config.loss, accelerator)
    accelerator.free_memory()
    return Measured(dataset.config, cost)


def _train_jobs(jobs: Sequence[Job], experiments: int, engine: str, workers: int | None) -> list[tuple[Job, str]]:
    """Trains the folds of so many experiments in parallel; returns the failed ones with the reason."""
    seconds = sum(job.seconds for job in jobs)
    jobs = random.Random(0).sample(jobs, len(jobs))  # quick and slow cells mixed: the estimated time is right early
    devices = {job.config.training.device for job in jobs}
    what = f"training {len(jobs)} folds of {experiments} experiments"
    if engine != LOCAL:
        log.info(what)  # the machines of the cluster are others
        ended = work_on_ray(engine, partial(_train, None), jobs, workers, gpus=devices != {"cpu"})
    else:
        gpus, cores = visible_gpus(), count_cores()
        own = gpus if devices <= {"auto", "cuda"} else []
        default = cores if not gpus or devices == {"cpu"} else len(own) or 1
        workers = min(workers or default, len(jobs))
        # A fold was measured with all threads of this process; workers on a CPU share its cores.
        at_once = workers if gpus and devices != {"cpu"} else min(workers, max(1, cores // torch.get_num_threads()))
        say_how_long(what, seconds / at_once)
        ended = work(partial(_train, max(1, cores // workers)), jobs, workers, own)
    return failures(ended, len(jobs), "training", lambda job: job.name, lambda job: job.seconds, seconds)


def best_cells(folder: Path, names: Sequence[str], folds: Sequence[str], measure: str) -> str:
    """A table of the cells with the best mean over validation queries, of the cells that finished all these folds."""
    measure = measure_name("nDCG" if measure == "loss" else measure)  # losses cannot be compared with each other
    means, first_stages = {}, {}
    for name in progress(names, len(names), "validation values"):
        results = [FoldResults(CollectionFolder(folder).experiment(name).fold(fold)) for fold in folds]
        values = [value for fold in results if (value := fold.validation_mean(measure)) is not None]
        if len(values) == len(folds):
            means[name] = mean_and_error(values)
            first_stages[name] = [fold.first_stage for fold in results if fold.first_stage is not None]
    best = sorted(means, key=lambda name: -means[name][0])[:BEST]
    head = f"{folder}: the best of {len(means)} finished cells"
    over = f"mean ± standard error over {len(folds)} folds" if len(folds) > 1 else f"fold {folds[0]}"
    rows = [["cell", f"{measure} of validation"], *([name, format_mean(*means[name])] for name in best)]
    if all(first_stages[name] for name in best):  # feature vectors have no first stage
        firsts = (f"{fmean(first_stages[name]):.4f}" for name in best)
        rows = [[*row, first] for row, first in zip(rows, ["first stage", *firsts], strict=True)]
    return f"{head}, {over}\n\n{aligned(rows)}\n"


def _documents(config: Config) -> int:
    """The documents of a training list, at most."""
    counts = (config.lists.relevant, config.lists.non_relevant)
    depth = config.first_stage.depth
    return depth if "all" in counts else min(depth, sum(int(count) for count in counts))


def _train(threads: int | None, job: Job) -> None:
    """Trains a job with at most `threads` threads."""
    if threads is not None:
        torch.set_num_threads(min(torch.get_num_threads(), threads))
    train_folds(job.config, job.fold)
