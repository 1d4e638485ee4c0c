"""Prepares what the cells of a sweep share, before the workers start: retrieval, pre-training, tokens, features."""

from dataclasses import asdict
from typing import NamedTuple

from rerank.config import Config
from rerank.experiments.folds import draws_queries
from rerank.experiments.train import open_experiment
from rerank.runs.layout import CollectionFolder
from rerank.training.processes import expect_one_process

OWN = ("loss", "lists", "training", "output")
"""The sections that nothing shared depends on."""


class Shared(NamedTuple):
    """The collection's folder, the names of the sweep's folds, and those of all folds of the collection."""

    folder: CollectionFolder
    folds: list[str]
    all_folds: list[str]


def prepare_shared(configs: list[Config], fold: str) -> list[Shared]:
    """For each cell, what it shares with the cells that differ only in loss, lists, training or name.

    Raises UserError for invalid input.
    """
    prepared: dict[str, Shared] = {}
    shared = []
    for config in configs:
        key = str([values for section, values in asdict(config).items() if section not in OWN] + _drawing(config))
        if key not in prepared:
            prepared[key] = _prepare(config, fold)
        shared.append(prepared[key])
    return shared


def _drawing(config: Config) -> list[object]:
    """What of the cell's own sections decides which queries are used."""
    return [config.training.validate_queries, config.training.seed] if draws_queries(config) else []


def _prepare(config: Config, fold: str) -> Shared:
    experiment = open_experiment(config, fold)
    expect_one_process(experiment.accelerator, "a sweep", ", with --workers N")
    experiment.task(experiment.folds[0])  # writes the token store
    experiment.accelerator.free_memory()
    return Shared(experiment.dataset.folder, [part.name for part in experiment.folds], experiment.fold_names)
