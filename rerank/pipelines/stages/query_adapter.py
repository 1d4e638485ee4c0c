"""The stage `query-adapter`: transforms the query vectors of a bi-encoder by a matrix that judgments train."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from rerank.config import Config, ListsSettings, LossSettings, TrainingSettings
from rerank.data.candidates import select_candidates
from rerank.data.types import Candidates, Fold, Run
from rerank.evaluation.fusion import place_above
from rerank.pipelines.stages.base import BI_ENCODER, Learns, expect_one_below, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.reranking import (
    SMALL_TRAINING,
    WHOLE_LISTS,
    check_training_settings,
    lists_to_rank,
    train,
)
from rerank.pipelines.stages.world import World
from rerank.utils.parameters import PathText, Whole, at_least

if TYPE_CHECKING:
    from rerank.models.query_adapter import QueryAdapter as Matrix
    from rerank.pipelines.small_models import PairVectors

SCALED_BY = 1000
"""Most training queries whose candidates determine the scale of the scores."""


@stage
@dataclass(frozen=True)
class QueryAdapterStage(Composable):
    """Re-ranks the best documents of the stage below with a bi-encoder whose query vectors a trained matrix transforms.

    Training starts from the bi-encoder's own vectors and takes seconds on a CPU; without a relevant document, these are
    kept. The score of the stage below, standardised by query, is added. Documents below `depth` keep their order.

    >>> QueryAdapterStage("fused", "sentence-transformers/all-MiniLM-L6-v2").learns
    'cheaply'
    """

    kind: ClassVar[str] = "query-adapter"
    of: str | tuple[str, ...] = ""
    """The stage whose documents are ranked."""
    encoder: PathText = BI_ENCODER
    """A bi-encoder of sentence-transformers: a hub name or a folder."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    below_weight: Annotated[float, at_least(0)] = 2.0
    """Weight of the standardised score of the stage below."""
    lists: ListsSettings = WHOLE_LISTS
    """Which documents of a query form a training list."""
    loss: str | LossSettings = "hinge"
    """The loss and its hyperparameters."""
    training: TrainingSettings = SMALL_TRAINING
    """Epochs, steps and the learning rate (`head_lr`)."""
    learns: ClassVar[Learns] = "cheaply"

    def check(self) -> None:
        expect_one_below(self)
        check_training_settings(Config(lists=self.lists, loss=self.loss, training=self.training))

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "AdapterRanker":
        """Trains the matrix on the training queries; validation queries choose the epoch."""
        from rerank.models import query_adapter as models  # loads torch
        from rerank.pipelines.small_models import SmallModel, SmallModelTask

        query_ids, collection = [*fold.train, *fold.valid], world.collection
        candidates = dict(select_candidates(below[0], collection.qrels, self.depth, query_ids, keep_scores=True))
        queries = {query_id: collection.queries[query_id] for query_id in query_ids}
        inputs = _inputs(self.encoder, world, queries, candidates.values())
        model = models.QueryAdapter(world.vectors(self.encoder).vectors.shape[1])

        def scale(task: SmallModelTask) -> None:
            sample = itertools.islice(task.lists["train"], SCALED_BY)
            model.scale = models.standardising_scale(model, (inputs([found]).to(task.device) for found in sample))

        train(self, world, fold, candidates, SmallModel(model, inputs, self.below_weight, scale), folder)
        return AdapterRanker(self, world, model)

    def open(self, world: World, folder: Path) -> "AdapterRanker":
        from rerank.models.query_adapter import load_adapter

        world.vectors(self.encoder)
        return AdapterRanker(self, world, load_adapter(folder))


@dataclass(frozen=True)
class AdapterRanker:
    """Ranks with a trained matrix."""

    settings: QueryAdapterStage
    world: World
    model: "Matrix"

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        from rerank.pipelines.small_models import score_lists

        settings, device = self.settings, self.model.change.device
        lists = list(lists_to_rank(queries, below[0], settings.depth).values())
        inputs = _inputs(settings.encoder, self.world, queries, lists)
        return place_above(score_lists(self.model, inputs, lists, settings.below_weight, device), below[0])

    def save(self, folder: Path) -> None:
        from rerank.models.query_adapter import save_adapter

        save_adapter(self.model, folder)


def _inputs(encoder: str, world: World, queries: Mapping[str, str], lists: Iterable[Candidates]) -> "PairVectors":
    """The inputs of the adapter for any of these lists; the rows of their documents are looked up once."""
    from rerank.pipelines.small_models import PairVectors

    documents = world.vectors(encoder)
    numbers = documents.numbers({doc_id for found in lists for doc_id in found.doc_ids})
    rows = {doc_id: range(*documents.offsets[number : number + 2]) for doc_id, number in numbers.items()}
    return PairVectors(world.encoder(encoder), world.query_vectors(encoder, queries), rows, documents.vectors)
