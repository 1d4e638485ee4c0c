"""What stages share that rank the first documents of the stage below, and leave the others below these."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.config import ListsSettings, TrainingSettings
from rerank.data.candidates import select_candidates
from rerank.data.types import Candidates, Fold, Run
from rerank.evaluation.weights import some_queries
from rerank.experiments.runs.layout import FoldFolder
from rerank.pipelines.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.progress import log

if TYPE_CHECKING:
    from rerank.pipelines.small_models import Inputs, SmallModelTask

SMALL_TRAINING = TrainingSettings(epochs=8, lists_per_epoch=256, lists_per_step=8, head_lr=1e-3)
WHOLE_LISTS = ListsSettings("all", "all")


def lists_to_rank(queries: Mapping[str, str], first: Run, depth: int) -> Mapping[str, Candidates]:
    """The first `depth` documents of each query that has text, with the standardised scores of the stage below."""
    query_ids = [query_id for query_id, text in queries.items() if text.strip() and first.get(query_id)]
    return select_candidates(first, {}, depth, query_ids, keep_scores=True)


def lists_to_tune(settings: Any, query_ids: Iterable[str], first: Run) -> list[Candidates]:
    """The first documents of the stage below for some of these queries, which choose a weight."""
    some = some_queries([query_id for query_id in query_ids if first.get(query_id)])
    return list(select_candidates(first, {}, settings.depth, some, keep_scores=True).values())


def train(
    settings: Any,
    world: World,
    fold: Fold,
    candidates: Mapping[str, Candidates],
    model: Any,
    inputs: "Inputs",
    folder: Path,
    prepare: "Callable[[SmallModelTask], None]" = lambda task: None,
) -> None:
    """Trains a small model on the candidates of a fold's training queries; validation queries choose the epoch.

    It stays as it is if there is no relevant document to learn from. `prepare` is called before the training.
    """
    from rerank.pipelines.small_models import SmallModelTask  # loads torch
    from rerank.training.device import kept_torch_settings, open_accelerator
    from rerank.training.objective import train_to_rank

    qrels, shared = world.collection.qrels, world.config.training
    with kept_torch_settings():
        accelerator = open_accelerator(TrainingSettings(device=shared.device))
        own = settings.lists, replace(settings.training, seed=shared.seed), settings.below_weight, accelerator.device
        try:
            task = SmallModelTask(fold, candidates, qrels, model, inputs, *own)
        except UserError as error:  # no query to learn from or to validate with
            log.info(f"{settings.kind}: {error}")
            return
        prepare(task)
        place, valid = FoldFolder(folder), task.qrels("valid")
        train_to_rank(task, valid, settings.loss, place, task.training, accelerator, show=False)
        task.load(place.checkpoint)
