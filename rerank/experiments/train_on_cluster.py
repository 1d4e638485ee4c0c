"""Trains the folds of an experiment side by side on a Ray cluster; each fold is a job."""

from pathlib import Path
from typing import NamedTuple

from rerank.config import Config
from rerank.data.folds import FINAL
from rerank.experiments.train import open_experiment, train_folds, write_joined_run
from rerank.runs.layout import ExperimentFolder
from rerank.training.processes import expect_one_process
from rerank.utils.cluster.jobs import expect_engine, work_on_ray
from rerank.utils.progress import log
from rerank.utils.workers import failures


class Job(NamedTuple):
    """One fold."""

    config: Config
    fold: str
    epochs_from: Path | None


class Trained(NamedTuple):
    """The folder of the experiment, and the folds that failed, with the reason."""

    folder: ExperimentFolder
    failed: dict[str, str]


def train_on_cluster(config: Config, fold: str, engine: str, epochs_from: Path | None = None) -> Trained:
    """Trains the fold of that name, or "all", as `train_folds` does, on the Ray cluster `engine`.

    The collection, the first stage, the tokens and a pre-trained encoder are made here, before the workers start. A
    fold that fails does not stop the others; the same command trains it again. Raises UserError as `train_folds` and
    `work_on_ray` do.
    """
    expect_engine(engine)
    experiment = open_experiment(config, fold, epochs_from)
    try:
        expect_one_process(experiment.accelerator, f"--on {engine}:")
        names = [part.name for part in experiment.folds if not experiment.folder.fold(part.name).finished]
        log.info(f"{len(experiment.folds)} folds, {len(experiment.folds) - len(names)} of them finished already")
        failed: dict[str, str] = {}
        if names:
            experiment.task(experiment.folds[0])  # writes the token store
            experiment.accelerator.free_memory()
            failed = _train_all([Job(config, name, epochs_from) for name in names], engine)
        if fold != FINAL:
            write_joined_run(experiment)
        return Trained(experiment.folder, failed)
    finally:
        experiment.claim.release()


def _train_all(jobs: list[Job], engine: str) -> dict[str, str]:
    """Trains all folds and returns those that failed, with the reason."""
    config = jobs[0].config
    gpus = config.training.device != "cpu"
    ended = work_on_ray(engine, train_fold_of, jobs, Path(config.output.folder), gpus=gpus)
    return {job.fold: error for job, error in failures(ended, len(jobs), "folds", lambda job: f"fold {job.fold}")}


def train_fold_of(job: Job) -> None:
    """What a worker does."""
    train_folds(job.config, job.fold, job.epochs_from)
