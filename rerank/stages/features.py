"""The stage `features`: a network on the scores and ranks that other stages give a document."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from rerank.config import ListsSettings, LossSettings, TrainingSettings
from rerank.data.candidates import select_candidates
from rerank.data.trec import ranked
from rerank.data.types import Candidates, Fold, Run
from rerank.evaluation.fusion import fuse_scores, place_above
from rerank.stages.base import Learns, stage
from rerank.stages.reranking import SMALL_TRAINING, train
from rerank.stages.world import World
from rerank.utils.parameters import Whole, at_least

if TYPE_CHECKING:
    from rerank.models.feature_mlp import FeatureMLP
    from rerank.tasks.small_models import Inputs

NETWORK = "network"


@stage
@dataclass(frozen=True)
class Features:
    """Re-ranks the best documents of an equal-weight fusion of the stages below by the paper's network for features.

    The features of a document are its score, scaled to [0, 1] for each query, and its reciprocal rank in each stage; 0
    where a stage does not have it. The fused score, standardised by query, is added to that of the network, so that
    training starts near the fusion. Without a relevant document to learn from, the ranking is the fusion's.
    """

    kind: ClassVar[str] = "features"
    of: str | tuple[str, ...]
    """The stages whose scores are features."""
    hidden: Annotated[Whole, at_least(1)] = 32
    """Hidden units of the network."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    below_weight: Annotated[float, at_least(0)] = 2.0
    """Weight of the standardised score of the fusion."""
    lists: ListsSettings = field(default=ListsSettings("all", "all"))
    """Which documents of a query form a training list."""
    loss: str | LossSettings = "smoothi"
    """The loss and its hyperparameters."""
    training: TrainingSettings = field(default=SMALL_TRAINING)
    """Epochs, steps and learning rate, which is `head_lr`."""
    learns: ClassVar[Learns] = "cheaply"

    def check(self) -> None:
        from rerank.training.objective import open_loss  # loads torch

        if not self.of:
            raise ValueError("expected one stage or more, whose scores are features")
        open_loss(self.loss, "loss")

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "FeaturesRanker":
        """Trains the network on the training queries; validation queries choose the epoch."""
        from rerank.models.feature_mlp import FeatureMLP  # loads torch

        query_ids, qrels = [*fold.train, *fold.valid], world.collection.qrels
        candidates = select_candidates(_fused(below), qrels, self.depth, query_ids, keep_scores=True)
        model = FeatureMLP(2 * len(below), self.hidden, world.config.training.seed)
        inputs = _inputs(below, candidates.values())
        return FeaturesRanker(self, train(self, world, fold, candidates, model, inputs, folder))

    def open(self, world: World, folder: Path) -> "FeaturesRanker":
        """Reads the network; none was saved if there was nothing to learn. Raises UserError for a damaged one."""
        from rerank.models.feature_mlp import open_feature_mlp

        return FeaturesRanker(self, open_feature_mlp(folder / NETWORK) if (folder / NETWORK).exists() else None)


@dataclass(frozen=True)
class FeaturesRanker:
    """Ranks the first documents of the fusion with a trained network; has the fusion alone if there is none."""

    settings: Features
    model: "FeatureMLP | None"

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        fused = _fused(below)
        if self.model is None or not fused:
            return fused
        from rerank.tasks.small_models import score_lists

        lists = list(select_candidates(fused, {}, self.settings.depth, keep_scores=True).values())
        device = next(self.model.parameters()).device
        scores = score_lists(self.model, _inputs(below, lists), lists, self.settings.below_weight, device)
        return place_above(scores, fused)

    def save(self, folder: Path) -> None:
        from rerank.models.feature_mlp import save_feature_mlp

        if self.model is not None:
            save_feature_mlp(self.model, folder / NETWORK)


def _fused(runs: Sequence[Run]) -> Run:
    return fuse_scores(runs, (1 / len(runs),) * len(runs))


def _inputs(runs: Sequence[Run], candidates: Iterable[Candidates]) -> "Inputs":
    """A function that gives the features of lists of these candidates, (documents, 2 × stages) float32."""
    import torch

    from rerank.batches.features import Vectors

    of_query = {found.query_id: dict(zip(found.doc_ids, _rows(runs, found), strict=True)) for found in candidates}

    def inputs(lists: Sequence[Candidates]) -> Vectors:
        rows = [of_query[found.query_id][doc_id] for found in lists for doc_id in found.doc_ids]
        return Vectors(torch.from_numpy(np.stack(rows)))

    return inputs


def _rows(runs: Sequence[Run], found: Candidates) -> np.ndarray:
    """The features of a query's candidates, (documents, 2 × stages) float32."""
    columns = []
    for run in runs:
        scores = run.get(found.query_id, {})
        ranks = {doc_id: rank for rank, doc_id in enumerate(ranked(scores), start=1)}
        lowest = min(scores.values(), default=0.0)
        spread = max(scores.values(), default=0.0) - lowest or 1.0
        columns += [[(scores.get(doc_id, lowest) - lowest) / spread for doc_id in found.doc_ids]]
        columns += [[1 / ranks[doc_id] if doc_id in ranks else 0.0 for doc_id in found.doc_ids]]
    return np.array(columns, dtype=np.float32).reshape(2 * len(runs), -1).T
