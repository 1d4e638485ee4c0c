"""Selects the candidates of each query from a run: the documents that a re-ranker sees, with their labels."""

from collections.abc import Iterable

from rerank.data.trec import check_common, ranked
from rerank.data.types import Candidates, Judgments, Run
from rerank.utils.errors import UserError


def select_candidates(
    run: Run, qrels: Judgments, depth: int, query_ids: Iterable[str] | None = None
) -> dict[str, Candidates]:
    """The best `depth` documents by query_id, in first-stage order, for `query_ids` or every query of the run.

    The label of a document without a judgment, or with a negative one (TREC's "junk"), is 0. A query that is not in the
    run has no documents; one without judgments has labels of 0. `qrels` may be empty. Raises UserError if the run and
    the judgments share no query: they belong to different collections.
    """
    if depth < 1:
        raise UserError(f"depth: expected at least 1 document a query, got {depth}")
    if qrels:
        check_common(run, qrels)
    candidates = {}
    for query_id in run if query_ids is None else query_ids:
        doc_ids = tuple(ranked(run.get(query_id, {}))[:depth])
        judged = qrels.get(query_id, {})
        labels = tuple(max(0, judged.get(doc_id, 0)) for doc_id in doc_ids)
        candidates[query_id] = Candidates(query_id, doc_ids, labels)
    return candidates


def queries_without_relevant(candidates: dict[str, Candidates]) -> list[str]:
    """The ids of the queries without a relevant candidate: training skips them, evaluation keeps them."""
    return [query_id for query_id, documents in candidates.items() if not any(documents.labels)]
