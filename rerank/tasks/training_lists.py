"""Lists from a file as the training lists of a fold: which are left out, their texts, the same file on resuming."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.data.lists import OF_TEXT, TrainingLists, read_training_lists
from rerank.data.sources import UnknownDocumentError
from rerank.data.types import Candidates, Fold
from rerank.losses import LABELS
from rerank.runs.layout import ExperimentFolder
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.json_files import read_json


class ListsRecord(TypedDict):
    """lists.json: the hash of the file of training lists, and how many it has."""

    sha256: str
    lists: int


@dataclass(frozen=True)
class FoldLists:
    """The lists that train a fold, and how many of the file do not.

    `held_out` lists ask a validation or test query of the fold; `without_relevant` lists have no label of 1 or more,
    from which a loss that takes judgments learns nothing.
    """

    lists: list[Candidates]
    held_out: int
    without_relevant: int

    def facts(self, file: TrainingLists) -> dict[str, Any]:
        """The file and these numbers, for the manifest."""
        return {
            "file": str(file.path),
            "sha256": file.sha256,
            "lists": len(file.lists),
            "trained_on": len(self.lists),
            "held_out": self.held_out,
            "without_relevant": self.without_relevant,
        }


def open_lists(config: Config, collection: Collection) -> TrainingLists | None:
    """The lists of `--training.lists`, None if the setting is empty.

    Raises UserError with file and line for a malformed line, a query that the collection does not have, and labels that
    the loss does not take.
    """
    if not config.training.lists:
        return None
    return read_training_lists(Path(config.training.lists), collection.queries, LABELS[config.loss.name])


def lists_of_fold(file: TrainingLists, fold: Fold, queries: Mapping[str, str], loss: str) -> FoldLists:
    """The lists of the file that train the fold; `queries` are the collection's, query_id to text.

    Lists whose query is a validation or test query of the fold, or has the text of one, are left out; white space and
    case do not count. Raises UserError if no list is left.
    """
    held_out = {_normalised(queries[query_id]) for query_id in (*fold.valid, *fold.test)}
    asked = {query_id: _normalised(text) for query_id, text in file.query_texts(queries).items()}
    allowed = [found for found in file.lists if asked[found.query_id] not in held_out]
    useful = allowed
    if LABELS[loss] == "judgments":
        useful = [found for found in allowed if any(label >= 1 for label in found.labels)]
    if not useful:
        raise UserError(
            f"{file.path}: fold {fold.name} can train on none of its {len(file.lists)} lists: "
            f"{len(file.lists) - len(allowed)} are of validation or test queries, {len(allowed)} without a label of 1 "
            "or more"
        )
    return FoldLists(useful, len(file.lists) - len(allowed), len(allowed) - len(useful))


def texts_of(doc_ids: Sequence[str], collection: Collection, file: TrainingLists | None) -> Iterator[str]:
    """The texts of documents of the collection and then of those that the file gives by text, these up to its last.

    Raises UserError, with file and line, for a document of the file that the collection does not have.
    """
    try:
        own = doc_ids if file is None else [doc_id for doc_id in doc_ids if not doc_id.startswith(OF_TEXT)]
        for document in collection.get(own):
            yield document.text
    except UnknownDocumentError as error:
        place = file.place_of(error.doc_id) if file else None
        if place is None:
            raise
        raise UserError(
            f"{place}: the collection has no document {error.doc_id}; give texts under 'documents', or drop the line"
        ) from error
    if file is not None:
        given = sum(doc_id.startswith(OF_TEXT) for doc_id in doc_ids)
        yield from itertools.islice(file.texts(), len(file.doc_ids()[1]) - given, None)


def expect_same_lists(folder: ExperimentFolder, file: TrainingLists) -> None:
    """Records the hash of the file in the experiment's folder.

    Raises UserError if a fold was begun with another one.
    """
    if folder.begun and folder.lists.is_file():
        before: ListsRecord = read_json(folder.lists, ListsRecord, f"give another --name, or remove {folder.path}")
        if before["sha256"] != file.sha256:
            raise UserError(
                f"{file.path}: has changed since this experiment was begun ({before['lists']} lists then, "
                f"{len(file.lists)} now); give this one another --name, or remove {folder.path}"
            )
        return
    with atomic_write(folder.lists) as tmp:
        tmp.write_text(json.dumps({"sha256": file.sha256, "lists": len(file.lists)}), encoding="utf-8")


def _normalised(text: str) -> str:
    return " ".join(text.split()).casefold()
