"""Functions for stages that re-rank the first documents of the stage below and keep the order of the others."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rerank.config import Config, ListsSettings, LossSettings, TrainingSettings
from rerank.data.candidates import select_candidates
from rerank.data.types import Candidates, Fold, Run
from rerank.evaluation.weights import some_queries
from rerank.experiments.runs.layout import FoldFolder
from rerank.pipelines.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.progress import log

if TYPE_CHECKING:
    from rerank.pipelines.small_models import SmallModel

SMALL_TRAINING = TrainingSettings(epochs=8, lists_per_epoch=256, lists_per_step=8, head_lr=1e-3)
"""The default training of a query adapter: seconds on a CPU."""

WHOLE_LISTS = ListsSettings("all", "all")
"""Training lists of all candidates of a query."""


class TrainedSettings(Protocol):
    """The settings of a stage that trains a small model."""

    @property
    def kind(self) -> str: ...

    @property
    def lists(self) -> ListsSettings: ...

    @property
    def loss(self) -> str | LossSettings: ...

    @property
    def training(self) -> TrainingSettings: ...


def lists_to_rank(queries: Mapping[str, str], first: Run, depth: int) -> Mapping[str, Candidates]:
    """The first `depth` documents of each query that has text, with standardised scores of the stage below."""
    query_ids = [query_id for query_id, text in queries.items() if text.strip() and first.get(query_id)]
    return select_candidates(first, {}, depth, query_ids, keep_scores=True)


def lists_to_tune(query_ids: Iterable[str], first: Run, depth: int) -> list[Candidates]:
    """The first `depth` documents of the stage below for a sample of these queries, to tune a weight."""
    sample = some_queries([query_id for query_id in query_ids if first.get(query_id)])
    return list(select_candidates(first, {}, depth, sample, keep_scores=True).values())


def check_training_settings(config: Config) -> None:
    """Raises UserError for settings of a training that contradict each other, and for lists from a file."""
    from rerank.experiments.checks import check_training  # loads torch

    if file := config.training.lists:
        raise UserError(f"training.lists {file}: has no effect: judgments of the collection are used; leave it out")
    check_training(config)


def train(
    settings: TrainedSettings,
    world: World,
    fold: Fold,
    candidates: Mapping[str, Candidates],
    small: "SmallModel",
    folder: Path,
) -> None:
    """Trains a small model on the candidates of a fold's training queries; validation queries choose the epoch.

    The model is not changed if there is no relevant document to learn from, which is logged.
    """
    from rerank.pipelines.small_models import SmallModelTask  # loads torch
    from rerank.training.device import kept_torch_settings, open_accelerator
    from rerank.training.objective import train_to_rank

    qrels, shared = world.collection.qrels, world.config.training
    with kept_torch_settings():
        accelerator = open_accelerator(TrainingSettings(device=shared.device))
        training = replace(settings.training, seed=shared.seed)
        config = replace(world.config, lists=settings.lists, training=training)
        try:
            task = SmallModelTask(fold, candidates, qrels, small, config, accelerator.device)
        except UserError as error:  # no query to learn from or to validate with
            log.info(f"{settings.kind}: {error}")
            return
        if small.prepare:
            small.prepare(task)
        place = FoldFolder(folder)
        train_to_rank(task, settings.loss, place, accelerator, show=False)
        task.load(place.checkpoint)
