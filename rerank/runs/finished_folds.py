"""What the finished folds of an experiment give: their test runs as one run, and a number of epochs.

Both need folds that were trained in the same way, which their manifests tell.
"""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rerank.config import Config
from rerank.data.trec import read_run
from rerank.data.types import Run
from rerank.runs.layout import ExperimentFolder, FoldFolder
from rerank.runs.manifest import read_manifest
from rerank.runs.settings import differences, settings_of
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash

SAME = {"first_stage": "sha256", "training_lists": "sha256", "documents": "fingerprint"}
"""Facts of the input that all folds share, and their keys that identify it."""

FLAG = "--training.epochs-from"

MAY_DIFFER = ("collection.folds", "training.epochs", "training.patience", "training.measure", "training.seed")
"""Settings of the folds that may differ from those of a model without validation: they change neither an epoch nor
what is learnt in it.

Where the learning rates are scheduled over the maximum number of epochs, that has to be the same.
"""


def joined_test_runs(folds: Sequence[FoldFolder], config: Config) -> Run:
    """The test runs of finished folds as one run.

    Raises UserError, which names the fold and what differs, for a fold with other settings than `config`, with other
    input than the first one, without a manifest, or whose test run is not the one that its manifest records.
    """
    joined: Run = {}
    first: dict[str, Any] = {}
    for fold in folds:
        try:
            facts = read_manifest(fold.manifest, "outcome")
            first = first or facts
            changed = _changed_settings(facts, config)
            for name, key in SAME.items():
                before, now = (of.get(name, {}).get(key) for of in (first, facts))
                changed += [f"another {name.replace('_', ' ')} than fold {folds[0].name}"] if before != now else []
            if not changed and facts["outcome"]["test"]["sha256"] != file_hash(fold.test_run):
                changed = [f"{fold.test_run.name} is not the file that {fold.manifest.name} records"]
        except UserError as error:
            changed = [str(error)]
        if changed:
            raise UserError(
                f"{fold.path}: not joined with the other folds: {'; '.join(changed)}; remove the folder to train the "
                "fold again"
            )
        joined |= read_run(fold.test_run)
    return joined


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
        facts = read_manifest(fold.manifest, "best_epoch")
        by_fold[fold.name] = facts["best_epoch"]
        if changed := _changed_settings(facts, config, may_differ):
            raise UserError(
                f"{FLAG} {folder}: fold {fold.name} was trained with other settings: {'; '.join(changed)}; give the "
                "settings of the folds, or the folder of folds with these"
            )
    return FoldEpochs(folder, by_fold)


def _changed_settings(facts: dict[str, Any], config: Config, may_differ: Collection[str] = ()) -> list[str]:
    """What has changed since the manifest was written, such as "training.lr = 0.001, now 0.002", but for some keys."""
    changed = differences(facts["config"], settings_of(config)).items()
    return [f"{key} = {old}, now {new}" for key, (old, new) in changed if key not in may_differ]
