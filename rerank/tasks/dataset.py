"""Data sets: what an experiment trains on, text or feature vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from accelerate import Accelerator

from rerank.config import Config
from rerank.data.letor.layouts import is_feature_source
from rerank.data.types import Fold
from rerank.runs.layout import CollectionFolder
from rerank.tasks.features import open_features
from rerank.tasks.open_text import open_text
from rerank.training.task import Part, Task


class FoldTask(Task, Protocol):
    """The task of one fold, with its test queries."""

    @property
    def judged_parts(self) -> Sequence[Part]:
        """The parts whose judgments are kept for evaluation."""

    def load(self, checkpoint: Path) -> None:
        """Replaces the model by that of a checkpoint."""

    def facts(self) -> dict[str, Any]:
        """What the manifest records of this kind of data and model."""


class Dataset(Protocol):
    """A collection with its folds: TextDataset or FeatureDataset."""

    @property
    def folder(self) -> CollectionFolder:
        """The folder of the collection in runs/."""

    @property
    def folds(self) -> list[Fold]:
        """The folds that are open."""

    @property
    def fold_names(self) -> list[str]:
        """The names of all folds."""

    @property
    def model(self) -> str:
        """What is trained, in words."""

    def final_fold(self, validated: bool) -> Fold:
        """The fold of the model to deploy, with validation queries if it is `validated`; it has no test queries.

        Raises UserError for data that no such model is trained on, and for too few judged queries.
        """

    def write_references(self) -> None:
        """Writes the judgments and the folds, which evaluation reads.

        Raises UserError if experiments with other folds are in the same folder.
        """

    def task(self, fold: Fold, accelerator: Accelerator) -> FoldTask:
        """The task of a fold; raises UserError if there is nothing to learn from or to measure."""


def open_dataset(config: Config, fold_name: str) -> Dataset:
    """Opens the collection of the settings for the fold of that name, or "all"; retrieves or parses what is missing.

    Raises UserError for a fold that does not exist and for files that are missing, such as judgments, or malformed.
    """
    if is_feature_source(config.collection.source):
        return open_features(config, fold_name)
    return open_text(config, fold_name, judged=True)
