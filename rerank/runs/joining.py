"""Joins the test runs of an experiment's folds, if all of them were trained in the same way."""

from collections.abc import Sequence
from typing import Any

from rerank.config import Config
from rerank.data.trec import read_run
from rerank.data.types import Run
from rerank.runs.layout import FoldFolder
from rerank.runs.manifest import read_manifest
from rerank.runs.settings import changes_in_words
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash

SAME = {"first_stage": "sha256", "training_lists": "sha256", "documents": "fingerprint"}
"""Facts of the input that all folds share, and their keys that identify it."""


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
            changed = changes_in_words(facts["config"], config)
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
