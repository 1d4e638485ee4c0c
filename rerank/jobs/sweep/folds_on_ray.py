"""`rerank train --on ray`: the folds of one experiment as the jobs of a sweep of one cell."""

from pathlib import Path
from typing import NamedTuple

from rerank.config import Config
from rerank.jobs.sweep.jobs import prepare_shared, train_jobs, unfinished_jobs
from rerank.runs.layout import ExperimentFolder
from rerank.utils.cluster.jobs import expect_engine


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
    (shared,) = prepare_shared([config], fold, epochs_from)
    failed = train_jobs(unfinished_jobs(config, shared, epochs_from), len(shared.folds), engine)
    folder = shared.folder.experiment(config.output.name or config.loss.name)
    return Trained(folder, {job.fold: error for job, error in failed})
