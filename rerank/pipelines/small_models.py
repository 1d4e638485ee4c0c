"""The task of a small model, whose inputs are cached vectors of a bi-encoder or scores of stages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from rerank.batches.batch import Batch, make_batch
from rerank.batches.sampling import epoch_lists
from rerank.config import Config
from rerank.data.folds import judgments_of
from rerank.data.types import Candidates, Fold, Judgments, Qrels, Run
from rerank.experiments.fold_lists import in_first_order, measured_candidates, trainable_candidates
from rerank.models.bi_encoder import BiEncoder
from rerank.models.query_adapter import VectorPairs, compared
from rerank.models.scoring import make_run, pairs_of
from rerank.training.task import Split

WEIGHTS = "weights.pt"
"""The file of a checkpoint."""

Inputs = Callable[[Sequence[Candidates]], Any]
"""Lists -> the inputs of a model for them."""


@dataclass(frozen=True)
class PairVectors:
    """The inputs of a query adapter: for some lists, the vectors of their queries and documents.

    queries: query_id -> (dimensions,) vector; rows: doc_id -> its rows in `vectors`, the vectors of all passages.
    """

    encoder: BiEncoder
    queries: Mapping[str, np.ndarray]
    rows: Mapping[str, range]
    vectors: np.ndarray

    def __call__(self, lists: Sequence[Candidates]) -> VectorPairs:
        doc_ids = [doc_id for found in lists for doc_id in found.doc_ids]
        list_of = np.repeat(np.arange(len(lists)), [len(found.doc_ids) for found in lists])
        found = [(row, place) for place, doc_id in enumerate(doc_ids) for row in self.rows.get(doc_id, ())]
        rows, places = np.array(found, dtype=np.int64).reshape(-1, 2).T.copy()
        return VectorPairs(
            compared(torch.from_numpy(np.stack([self.queries[found.query_id] for found in lists])), self.encoder),
            compared(torch.from_numpy(np.take(self.vectors, rows, axis=0)), self.encoder),
            torch.from_numpy(list_of[places]),
            torch.from_numpy(places),
            len(doc_ids),
        )


def score_lists(
    model: nn.Module, inputs: Inputs, lists: Sequence[Candidates], weight: float, device: torch.device
) -> Run:
    """The run of these candidates: the model's scores plus `weight` × standardised first-stage scores."""
    model.eval()
    with torch.inference_mode():
        scores = [score for found in lists for score in model(inputs([found]).to(device)).tolist()]
    return make_run(lists, dict(zip(pairs_of(lists), scores, strict=True)), weight)


class WeightedSum(nn.Module):
    """The weighted sum of the features of a document; the weights, (features,), are initially 0."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(features))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(documents,) float32 scores of (documents, features)."""
        return (inputs * self.weights).sum(1)


@dataclass(frozen=True)
class SmallModel:
    """A model and its use: `inputs` of lists, `weight` of the first-stage score, `prepare` before the training."""

    model: nn.Module
    inputs: Inputs
    weight: float
    prepare: "Callable[[SmallModelTask], None] | None" = None


class SmallModelTask:
    """A fold of text and a small model; see `training.task.Task`. Raises UserError if there is nothing to learn from.

    `config` has the settings of lists and of the training.
    """

    judged_splits: ClassVar[tuple[Split, ...]] = ("train", "valid")
    memory: ClassVar[None] = None  # a step is a product of small matrices

    def __init__(
        self,
        fold: Fold,
        candidates: Mapping[str, Candidates],
        qrels: Judgments,
        small: SmallModel,
        config: Config,
        device: torch.device,
    ) -> None:
        self.fold, self._qrels, self.inputs, self.device = fold, qrels, small.inputs, device
        self.drawn, self.training, self.weight = config.lists, config.training, small.weight
        self.lists: dict[Split, Sequence[Candidates]] = {
            "valid": measured_candidates("valid", fold, candidates, qrels),
            "train": trainable_candidates(fold, candidates, show=False),
        }
        self.model = small.model.to(device)
        self.model.first_stage_weight = small.weight  # type: ignore[assignment]

    def parameter_groups(self) -> list[dict[str, object]]:
        return [{"params": list(self.model.parameters()), "lr": self.training.head_lr}]

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        drawn, training = self.drawn, self.training
        return epoch_lists(
            self.lists["train"], epoch, training.lists_per_epoch, drawn.relevant, drawn.non_relevant, training.seed
        )

    def batch(self, lists: Sequence[Candidates]) -> Batch:
        return make_batch(lists, lambda pairs: self.inputs(lists))

    @property
    def first_stage(self) -> Run:
        return in_first_order(self.lists["valid"])

    def documents(self, split: Split) -> int:
        return sum(len(found.doc_ids) for found in self.lists[split])

    def score(self, split: Split) -> Run:
        return score_lists(self.model, self.inputs, list(self.lists[split]), self.weight, self.device)

    def qrels(self, split: Split) -> Qrels:
        return judgments_of(split, self.fold, self._qrels)

    def save(self, folder: Path) -> None:
        folder.mkdir()
        torch.save(self.model.state_dict(), folder / WEIGHTS)

    def load(self, checkpoint: Path) -> None:
        self.model.load_state_dict(torch.load(checkpoint / WEIGHTS, weights_only=True))

    def facts(self) -> dict[str, object]:
        return {"parameters": sum(parameter.numel() for parameter in self.model.parameters())}
