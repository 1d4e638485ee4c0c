"""The stage `features`: a learned weighted sum of the scores of other stages."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np

from rerank.config import Config, ListsSettings, LossSettings, TrainingSettings
from rerank.data.candidates import select_candidates, standardised
from rerank.data.types import Candidates, Fold, Run
from rerank.evaluation.fusion import place_above
from rerank.evaluation.weights import with_added
from rerank.pipelines.stages.base import Learns, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.reranking import WHOLE_LISTS, check_training_settings, lists_to_rank, train
from rerank.pipelines.stages.world import World
from rerank.utils.json_files import read_numbers
from rerank.utils.parameters import Whole, at_least

FILE = "weights.json"
"""The file with the learned weights."""

SHRUNK_BY = 30
"""Learned weights are multiplied by n / (n + SHRUNK_BY) for n judged queries, so that few queries change little."""

TRAINING = TrainingSettings(epochs=20, lists_per_epoch=64, head_lr=0.04, measure="loss")
"""The default settings of the training."""


@stage
@dataclass(frozen=True)
class FeaturesStage(Composable):
    """Re-ranks the best documents of the last stage below by its score plus a learned sum of the other stages' scores.

    The scores of a stage are standardised over these documents of a query. A document that a stage did not rank gets
    the lowest score of that stage. The weights are initially 0, so training starts from the ranking of the last stage
    below. Validation queries choose the epoch. Fewer queries shrink the weights more.

    >>> FeaturesStage(("bm25", "dense", "fused")).loss
    'lambda_loss'
    """

    kind: ClassVar[str] = "features"
    of: str | tuple[str, ...] = ""
    """The stages whose scores are added; the last one provides the documents."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    lists: ListsSettings = WHOLE_LISTS
    """Which documents of a query form a training list."""
    loss: str | LossSettings = "lambda_loss"
    """The loss and its hyperparameters."""
    training: TrainingSettings = TRAINING
    """Epochs, steps and the learning rate (`head_lr`); the loss on validation queries chooses the epoch."""
    learns: ClassVar[Learns] = "cheaply"

    def check(self) -> None:
        if isinstance(self.of, str) or len(self.of) < 2:
            raise ValueError("expected two stages or more")
        check_training_settings(Config(lists=self.lists, loss=self.loss, training=self.training))

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "FeaturesRanker":
        """Learns the weights on the training queries; validation queries choose the epoch."""
        import torch

        from rerank.pipelines.small_models import SmallModel, WeightedSum

        query_ids, qrels = [*fold.train, *fold.valid], world.collection.qrels
        candidates = dict(select_candidates(below[-1], qrels, self.depth, query_ids, keep_scores=True))
        rows = {q: dict(zip(c.doc_ids, columns_of(below[:-1], c), strict=True)) for q, c in candidates.items()}

        def inputs(lists: Sequence[Candidates]) -> torch.Tensor:
            return torch.tensor(np.stack([rows[c.query_id][doc_id] for c in lists for doc_id in c.doc_ids]))

        model = WeightedSum(len(below) - 1)
        train(self, world, fold, candidates, SmallModel(model, inputs, weight=1.0), folder)
        judged = sum(any(found.labels) for found in candidates.values())
        return FeaturesRanker(self, (model.weights * judged / (judged + SHRUNK_BY)).tolist())

    def open(self, world: World, folder: Path) -> "FeaturesRanker":
        return FeaturesRanker(self, read_numbers(folder / FILE, len(self.of) - 1, "fit the pipeline again"))


@dataclass(frozen=True)
class FeaturesRanker:
    """Ranks with the learned weights, one for each stage below but the last."""

    settings: FeaturesStage
    weights: Sequence[float]

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        lists = lists_to_rank(queries, below[-1], self.settings.depth)
        added = {q: columns_of(below[:-1], found) @ np.array(self.weights) for q, found in lists.items()}
        return place_above({q: with_added(found, added[q], 1.0) for q, found in lists.items()}, below[-1])

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self.weights), encoding="utf-8")


def columns_of(runs: Sequence[Run], found: Candidates) -> np.ndarray:
    """(documents, runs) float32: the standardised score of each run for a query's candidates."""
    columns = []
    for run in runs:
        scores = run.get(found.query_id, {})
        lowest = min(scores.values(), default=0.0)
        columns.append(standardised([scores.get(doc_id, lowest) for doc_id in found.doc_ids]))
    return np.array(columns, dtype=np.float32).reshape(len(runs), -1).T
