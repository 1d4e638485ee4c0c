"""The candidates of the queries of a fold: those that train, and those that are measured."""

from collections.abc import Mapping, Sequence

from accelerate import Accelerator

from rerank.data.candidates import ListsOf, without_relevant
from rerank.data.folds import FINAL
from rerank.data.types import Candidates, Fold, Judgments, Qrels
from rerank.training.task import Part
from rerank.utils.errors import UserError
from rerank.utils.progress import log

NAMES = {"valid": "validation", "test": "test"}


def measured_candidates(
    part: Part, fold: Fold, candidates: Mapping[str, Candidates], qrels: Judgments
) -> Sequence[Candidates]:
    """The candidates of the validation or the test queries that have any.

    Raises UserError if none of these queries is judged; the final model may have no such queries at all.
    """
    query_ids: tuple[str, ...] = getattr(fold, part)
    if fold.name == FINAL and not query_ids:
        return []
    found = [query_id for query_id in query_ids if candidates[query_id].doc_ids]
    if not any(query_id in qrels for query_id in found):
        raise UserError(
            f"fold {fold.name}: none of its {NAMES[part]} queries is judged and has a candidate: nothing to measure"
        )
    return ListsOf(candidates, found)


def trainable_candidates(
    fold: Fold, candidates: Mapping[str, Candidates], accelerator: Accelerator
) -> Sequence[Candidates]:
    """The candidates of the training queries that have a relevant one; raises UserError if there is no such query."""
    query_ids = fold.train
    skipped = set(without_relevant(candidates, query_ids))
    if skipped and accelerator.is_main_process:
        log.info(
            f"fold {fold.name}: {len(skipped)} of {len(query_ids)} training queries have no relevant candidate: skipped"
        )
    if len(skipped) == len(query_ids):
        raise UserError(
            f"fold {fold.name}: none of its {len(query_ids)} training queries has a relevant candidate: "
            "nothing to learn"
        )
    return ListsOf(candidates, [query_id for query_id in query_ids if query_id not in skipped])


def judgments_of(part: Part, fold: Fold, qrels: Judgments) -> Qrels:
    """The judgments of a part's queries."""
    query_ids: tuple[str, ...] = getattr(fold, part)
    return {query_id: qrels[query_id] for query_id in query_ids if query_id in qrels}
