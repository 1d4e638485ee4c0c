"""Task: everything that the training loop needs to train one model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from torch import nn

from rerank.batches.batch import Batch
from rerank.config import TrainingSettings
from rerank.data.types import Qrels, Run
from rerank.models.memory import TokenBudget

Split = Literal["train", "valid", "test"]
"""The queries of a fold that train, validate or test."""


class Task(Protocol):
    """A model with the lists and queries of a fold; `rerank.training.loop.train` trains it.

    `judged_splits` are the splits whose judgments the task has read.
    """

    judged_splits: ClassVar[tuple[Split, ...]]

    @property
    def model(self) -> nn.Module:
        """The model, trained in place. It maps the inputs of a batch to scores."""

    @property
    def memory(self) -> TokenBudget | None:
        """The bound on the tokens of a forward pass; None if a step must be a single forward pass (batch norm)."""

    @property
    def training(self) -> TrainingSettings:
        """The settings of the training, with the seed of the fold."""

    def parameter_groups(self) -> list[dict[str, object]]:
        """The parameter groups of the optimizer."""

    def training_lists(self, epoch: int) -> Sequence[Any]:
        """The training lists of an epoch, counted from 0; they depend only on the epoch and the fold's seed."""

    def batch(self, lists: Sequence[Any]) -> Batch:
        """The batch of some training lists."""

    @property
    def first_stage(self) -> Run:
        """The candidates of the validation queries in the first stage's order; empty if there is no first stage."""

    def documents(self, split: Split) -> int:
        """The number of documents that `score` scores."""

    def score(self, split: Split) -> Run:
        """Scores the candidates of the validation or test queries with the model's current weights."""

    def qrels(self, split: Split) -> Qrels:
        """The judgments of a split's queries."""

    def save(self, folder: Path) -> None:
        """Writes a checkpoint of the model into a new folder."""

    def load(self, checkpoint: Path) -> None:
        """Loads a checkpoint that `save` wrote, on the same device."""

    def facts(self) -> dict[str, object]:
        """The facts about the model and its training data for the fold's manifest."""
