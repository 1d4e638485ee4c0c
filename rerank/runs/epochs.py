"""The epochs of a model that is trained without validation: as many as finished folds took."""

import math
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rerank.config import Config
from rerank.runs.layout import ExperimentFolder
from rerank.runs.manifest import read_manifest
from rerank.runs.settings import changes_in_words
from rerank.utils.errors import UserError

FLAG = "--training.epochs-from"

MAY_DIFFER = ("collection.folds", "training.epochs", "training.patience", "training.measure", "training.seed")
"""Settings of the folds that need not be those of now: they change neither an epoch nor what is learnt in it.

Where the learning rates are scheduled over the maximum number of epochs, that has to be the same.
"""


class FoldEpochs(NamedTuple):
    """The best epoch of each finished fold by name, and their median, rounded; half an epoch counts as one."""

    folder: Path
    by_fold: dict[str, int]

    @property
    def median(self) -> int:
        """How many epochs to train."""
        return math.floor(median(self.by_fold.values()) + 0.5)

    def facts(self) -> dict[str, Any]:
        """What a manifest records."""
        return {"folder": str(self.folder), "best_epochs": self.by_fold, "epochs": self.median}


def epochs_from(folder: Path, config: Config) -> FoldEpochs:
    """The best epochs of the finished folds of an experiment, from their manifests.

    Raises UserError if `folder` has no finished fold, a manifest cannot be read, or a fold was trained with settings
    other than `config`, but for MAY_DIFFER.
    """
    folds = [fold for fold in ExperimentFolder(folder).folds if fold.finished]
    if not folds:
        found = "" if folder.is_dir() else ": no such folder"
        raise UserError(f"{FLAG} {folder}{found}: expected runs/<collection>/<experiment> with a finished fold")
    scheduled = config.training.schedule != "constant" or config.training.warmup_ratio > 0
    may_differ = {*MAY_DIFFER} - ({"training.epochs"} if scheduled else set())
    by_fold: dict[str, int] = {}
    for fold in folds:
        try:
            facts = read_manifest(fold.manifest, "best_epoch")
            settings, by_fold[fold.name] = facts["config"], facts["best_epoch"]
        except UserError as error:
            raise UserError(f"{FLAG} {folder}: {error}") from error
        if changed := changes_in_words(settings, config, may_differ):
            raise UserError(
                f"{FLAG} {folder}: fold {fold.name} was trained with other settings: {'; '.join(changed)}; give the "
                "settings of the folds, or the folder of folds with these"
            )
    return FoldEpochs(folder, by_fold)
