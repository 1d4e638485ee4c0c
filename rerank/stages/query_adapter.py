"""The stage `query-adapter`: a bi-encoder whose query vectors go through one matrix, which judgments train."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from rerank.config import ListsSettings, LossSettings, TrainingSettings
from rerank.data.candidates import select_candidates
from rerank.data.types import Fold, Run
from rerank.evaluation.fusion import place_above
from rerank.stages.base import Learns, check_loss, expect_one_below, loss_settings, stage
from rerank.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.parameters import PathText, Whole, at_least
from rerank.utils.progress import log

if TYPE_CHECKING:
    from rerank.models.query_adapter import QueryAdapter as Matrix
    from rerank.tasks.small_models import CandidateVectors

SCALED_BY = 1000
"""Training queries, at most, whose candidates give the scale of the scores."""
TRAINING = TrainingSettings(epochs=8, lists_per_epoch=256, lists_per_step=8, head_lr=1e-3)


@stage
@dataclass(frozen=True)
class QueryAdapter:
    """Re-ranks the best documents of the stage below by a bi-encoder whose query vectors a trained matrix changes.

    Training starts from the bi-encoder's own vectors and takes seconds on a CPU. Without a relevant document to learn
    from, the vectors stay as they are. The score of the stage below, standardised by query, is added to the adapter's.
    Documents below `depth` stay in their order.
    """

    kind: ClassVar[str] = "query-adapter"
    of: str | tuple[str, ...]
    """The stage whose documents are ranked."""
    encoder: PathText
    """A bi-encoder of sentence-transformers: a hub name or a folder."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    below_weight: Annotated[float, at_least(0)] = 2.0
    """Weight of the standardised score of the stage below."""
    lists: ListsSettings = field(default=ListsSettings("all", "all"))
    """Which documents of a query form a training list."""
    loss: str | LossSettings = "hinge"
    """The loss and its hyperparameters."""
    training: TrainingSettings = field(default=TRAINING)
    """Epochs, steps and learning rate, which is `head_lr`."""
    learns: ClassVar[Learns] = "cheaply"

    def check(self) -> None:
        """Raises ValueError unless one stage is below, and UserError for a loss that does not exist."""
        expect_one_below(self)
        check_loss(self.loss)

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "AdapterRanker":
        """Trains the matrix on the training queries; validation queries choose the epoch."""
        from rerank.models.query_adapter import (  # load torch
            QueryAdapter,
            load_adapter,
            save_adapter,
            standardising_scale,
        )
        from rerank.tasks.small_models import Kind, SmallModelTask, can_learn, train_small_model
        from rerank.training.device import open_accelerator

        (first,) = below
        query_ids, qrels = [*fold.train, *fold.valid], world.collection.qrels
        candidates = select_candidates(first, qrels, self.depth, query_ids, keep_scores=True)
        vectors = _vectors(
            self.encoder, world, {query_id: world.collection.queries[query_id] for query_id in query_ids}
        )
        model = QueryAdapter(vectors.documents.vectors.shape[1])
        if not can_learn(fold, candidates, qrels):
            log.info(f"query adapter: no query to learn from or to validate with has a relevant document of {self.of}")
            return AdapterRanker(self, world, model)
        accelerator = open_accelerator(device=world.config.training.device)
        training = replace(self.training, seed=world.config.training.seed)
        kind = Kind(vectors.of, save_adapter, load_adapter)
        settings = self.lists, training, self.below_weight, accelerator.device
        task = SmallModelTask(fold, candidates, qrels, model, kind, *settings)
        some = itertools.islice(task.lists["train"], SCALED_BY)
        model.scale = standardising_scale(model, (vectors.of([found]).to(accelerator.device) for found in some))
        return AdapterRanker(self, world, train_small_model(task, loss_settings(self.loss), folder, accelerator))

    def open(self, world: World, folder: Path) -> "AdapterRanker":
        """Reads the matrix. Raises UserError for a damaged file, or a matrix of another bi-encoder."""
        from rerank.models.query_adapter import load_adapter

        model = load_adapter(folder)
        dimensions = world.vectors(self.encoder).vectors.shape[1]
        if len(model.change) != dimensions:
            raise UserError(
                f"{folder}: a matrix for vectors of {len(model.change)} numbers; {self.encoder} has {dimensions}; fit "
                "the pipeline again"
            )
        return AdapterRanker(self, world, model)


@dataclass(frozen=True)
class AdapterRanker:
    """Ranks with a trained matrix."""

    settings: QueryAdapter
    world: World
    model: "Matrix"

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The documents of the stage below; the first `depth` of them are ranked, and come first."""
        from rerank.tasks.small_models import score_lists

        (first,) = below
        settings, world = self.settings, self.world
        vectors = _vectors(settings.encoder, world, queries)
        query_ids = [query_id for query_id in queries if first.get(query_id) and query_id in vectors.queries]
        lists = select_candidates(first, {}, settings.depth, query_ids, keep_scores=True)
        device = self.model.change.device
        scores = score_lists(self.model, vectors.of, list(lists.values()), settings.below_weight, device)
        return place_above(scores, first)

    def save(self, folder: Path) -> None:
        """Writes the matrix."""
        from rerank.models.query_adapter import save_adapter

        save_adapter(self.model, folder)


def _vectors(encoder: str, world: World, queries: Mapping[str, str]) -> "CandidateVectors":
    from rerank.tasks.small_models import CandidateVectors

    return CandidateVectors(world.encoder(encoder), world.vectors(encoder), world.query_vectors(encoder, queries))
