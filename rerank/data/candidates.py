"""Run + judgments + depth -> the candidates of each query: the documents that a re-ranker sees, with their labels."""

from collections.abc import Iterable

from rerank.data.trec import check_common, ranked
from rerank.errors import UserError
from rerank.types import Candidates, Qrels, Run


def select_candidates(
    run: Run, qrels: Qrels, depth: int, query_ids: Iterable[str] | None = None
) -> dict[str, Candidates]:
    """query_id -> its best `depth` documents in first-stage order, for `query_ids` or every query of the run.

    The label of a document without a judgment, or with a negative one (TREC's "junk"), is 0. A query that the run lacks
    has no documents; one that the judgments lack has labels of 0. `qrels` is empty where there are no labels to be had.
    Raises UserError where the run and the judgments share no query: they belong to different collections.
    """
    if depth < 1:
        raise UserError(f"depth: expected at least 1 document a query, got {depth}")
    if qrels:
        check_common(run, qrels)
    found = {}
    for query_id in run if query_ids is None else query_ids:
        doc_ids = tuple(ranked(run.get(query_id, {}))[:depth])
        judged = qrels.get(query_id, {})
        found[query_id] = Candidates(query_id, doc_ids, tuple(max(0, judged.get(doc_id, 0)) for doc_id in doc_ids))
    return found


def queries_without_relevant(found: dict[str, Candidates]) -> list[str]:
    """The query ids none of whose candidates is relevant: nothing to train on, but evaluation keeps them."""
    return [query_id for query_id, of_query in found.items() if not any(of_query.labels)]
