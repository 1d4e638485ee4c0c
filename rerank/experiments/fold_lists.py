"""The lists of a fold: candidates to train on or to measure, and training lists from a file."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rerank.data.candidates import ListsOf
from rerank.data.collections import Collection
from rerank.data.folds import SPLITS
from rerank.data.lists import OF_TEXT, TrainingLists
from rerank.data.types import Candidates, Fold, Judgments, Run
from rerank.losses import LABELS
from rerank.training.task import Split
from rerank.utils.errors import UserError
from rerank.utils.progress import log


def measured_candidates(
    split: Split, fold: Fold, candidates: Mapping[str, Candidates], qrels: Judgments
) -> Sequence[Candidates]:
    """The candidates of the validation or test queries that have candidates; raises UserError if none is judged."""
    query_ids: tuple[str, ...] = getattr(fold, split)
    if split == "test" and not query_ids:  # the final model, or a stage of a pipeline
        return []
    found = [query_id for query_id in query_ids if candidates[query_id].doc_ids]
    if not any(query_id in qrels for query_id in found):
        raise UserError(
            f"fold {fold.name}: none of its {SPLITS[split]} queries is judged and has a candidate: nothing to measure"
        )
    return ListsOf(candidates, found)


def in_first_order(lists: Iterable[Candidates]) -> Run:
    """The run of candidates in their order, which is the first stage's."""
    return {found.query_id: {doc_id: -float(at) for at, doc_id in enumerate(found.doc_ids)} for found in lists}


def trainable_candidates(fold: Fold, candidates: Mapping[str, Candidates], show: bool = True) -> Sequence[Candidates]:
    """The candidates of the training queries with a relevant candidate; raises UserError if there is none."""
    skipped = {query_id for query_id in fold.train if not any(candidates[query_id].labels)}
    queries = f"{len(fold.train)} training queries"
    if len(skipped) == len(fold.train):
        raise UserError(f"fold {fold.name}: none of its {queries} has a relevant candidate: nothing to learn")
    if skipped and show:
        log.info(f"fold {fold.name}: {len(skipped)} of {queries} have no relevant candidate: skipped")
    return ListsOf(candidates, [query_id for query_id in fold.train if query_id not in skipped])


def lists_of_fold(
    file: TrainingLists, fold: Fold, queries: Mapping[str, str], loss: str
) -> tuple[list[Candidates], dict[str, str | int]]:
    """The lists of a file that train the fold, and the facts about them for its manifest.

    A list is left out (`held_out`) if its query has the text of a validation or test query of the fold, ignoring white
    space and case; for a loss that takes judgments also if no label is 1 or more. `queries` are the texts of the
    collection's queries by id. Raises UserError if no list is left.
    """

    def normalised(text: str) -> str:
        return " ".join(text.split()).casefold()

    held_out = {normalised(queries[query_id]) for query_id in (*fold.valid, *fold.test)}
    asked = {query_id: normalised(text) for query_id, text in file.query_texts(queries).items()}
    allowed = [found for found in file.lists if asked[found.query_id] not in held_out]
    useful = [found for found in allowed if LABELS[loss] == "scores" or any(label >= 1 for label in found.labels)]
    facts: dict[str, str | int] = {
        "file": str(file.path),
        "sha256": file.sha256,
        "lists": len(file.lists),
        "trained_on": len(useful),
        "held_out": len(file.lists) - len(allowed),
        "without_relevant": len(allowed) - len(useful),
    }
    left_out = (
        f"{facts['held_out']} of validation or test queries, {facts['without_relevant']} without a label of 1 or more"
    )
    if not useful:
        raise UserError(f"{file.path}: fold {fold.name} can train on none of its {len(file.lists)} lists: {left_out}")
    log.info(f"fold {fold.name}: {len(useful)} of {len(file.lists)} lists of {file.path}; left out: {left_out}")
    return useful, facts


def texts_of(doc_ids: Sequence[str], collection: Collection, file: TrainingLists | None) -> Iterator[str]:
    """The texts of `doc_ids`: first the documents of the collection, then the file's own texts.

    The file's own texts end `doc_ids`: they are its last ones, in order.
    """
    own = [doc_id for doc_id in doc_ids if not (file and doc_id.startswith(OF_TEXT))]
    for document in collection.get(own):
        yield document.text
    if file is not None:
        given = len(doc_ids) - len(own)
        yield from itertools.islice(file.texts(), len(file.doc_ids()[1]) - given, None)
