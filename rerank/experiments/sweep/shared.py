"""What the cells of a sweep share, made before the workers start: retrieval, pre-training, tokens, features, folds."""

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rerank.config import Config
from rerank.errors import UserError
from rerank.experiments.train import open_experiment

OWN = ("loss", "lists", "training", "output")
"""The tables that nothing shared depends on."""


class Shared(NamedTuple):
    """`folder` is runs/<collection>, `folds` the names of the sweep's folds, `all_folds` those of the collection."""

    folder: Path
    folds: list[str]
    all_folds: list[str]


def prepare_shared(configs: list[Config], fold: str) -> list[Shared]:
    """For each cell what it shares with the cells that differ from it in loss, lists, training or name alone.

    Raises UserError for what the user can mend.
    """
    made: dict[str, Shared] = {}
    found = []
    for config in configs:
        key = str([values for table, values in asdict(config).items() if table not in OWN])
        if key not in made:
            made[key] = _prepare(config, fold)
        found.append(made[key])
    return found


def _prepare(config: Config, fold: str) -> Shared:
    experiment = open_experiment(config, fold)
    if experiment.accelerator.num_processes > 1:
        raise UserError("a sweep starts its own processes: run it without accelerate or torchrun, with --workers N")
    experiment.task(experiment.folds[0])  # makes what lies on disk: tokens
    experiment.accelerator.free_memory()
    return Shared(experiment.dataset.folder.path, [part.name for part in experiment.folds], experiment.fold_names)
