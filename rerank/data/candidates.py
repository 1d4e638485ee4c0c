"""Selects the candidates of each query from a run: the documents that a re-ranker sees, with their labels."""

import math
from array import array
from collections.abc import Iterable, Sequence

from rerank.data.trec import check_common, ranked
from rerank.data.types import Candidates, Judgments, Run
from rerank.utils.errors import UserError


def select_candidates(
    run: Run, qrels: Judgments, depth: int, query_ids: Iterable[str] | None = None, keep_scores: bool = False
) -> dict[str, Candidates]:
    """The best `depth` documents by query_id, in first-stage order, for `query_ids` or every query of the run.

    The label of a document without a judgment, or with a negative one (TREC's "junk"), is 0. A query that is not in the
    run has no documents; one without judgments has labels of 0. `qrels` may be empty. With `keep_scores` the candidates
    have their first-stage scores. Raises UserError if the run and the judgments share no query: they belong to
    different collections.
    """
    if depth < 1:
        raise UserError(f"depth: expected at least 1 document a query, got {depth}")
    if qrels:
        check_common(run, qrels)
    candidates = {}
    for query_id in run if query_ids is None else query_ids:
        scores = run.get(query_id, {})
        doc_ids = tuple(ranked(scores)[:depth])
        judged = qrels.get(query_id, {})
        labels = tuple(max(0, judged.get(doc_id, 0)) for doc_id in doc_ids)
        first_scores = standardised([scores[doc_id] for doc_id in doc_ids]) if keep_scores else ()
        candidates[query_id] = Candidates(query_id, doc_ids, labels, first_scores)
    return candidates


def standardised(scores: Sequence[float]) -> tuple[float, ...]:
    """Scores, read as float32, with a mean of 0 and a (population) standard deviation of 1; 0 if all are equal.

    >>> standardised([3.0, 1.0])
    (1.0, -1.0)
    """
    values = array("f", scores)
    mean = math.fsum(values) / max(1, len(values))
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(1, len(values)))
    return tuple((value - mean) / spread if spread else 0.0 for value in values)


def queries_without_relevant(candidates: dict[str, Candidates]) -> list[str]:
    """The ids of the queries without a relevant candidate: training skips them, evaluation keeps them."""
    return [query_id for query_id, documents in candidates.items() if not any(documents.labels)]
