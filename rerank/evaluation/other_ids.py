"""Finds out whether the ids of a run are those of the judgments, for a note of `rerank eval`."""

import re
from collections.abc import Iterable

from rerank.data.trec import examples
from rerank.data.types import Qrels, Run

MOST_COMPARED = 20
"""Queries without a judged document whose ids are compared."""

SEPARATOR = re.compile(r"[\W_]")
"""What may stand between the id of a document and the number of its passage."""


def note_on_other_ids(name: str, run: Run, qrels: Qrels) -> str:
    """A note on the queries for which a run ranks no judged document; "" if there are none.

    It has example ids if these may differ: if whole documents are judged and passages ranked, or if no query at all
    ranks a judged document.
    """
    answered = [query_id for query_id in qrels if run.get(query_id)]
    apart = [query_id for query_id in answered if run[query_id].keys().isdisjoint(qrels[query_id])]
    if not apart:
        return ""
    note = f"{name}: {len(apart)} of {len(qrels)} queries rank no judged document ({examples(apart)})"
    pairs = ((query_id, _cut_ids(qrels[query_id], run[query_id])) for query_id in apart[:MOST_COMPARED])
    query_id, ids = next((pair for pair in pairs if pair[1]), (apart[0], None))
    if not ids and len(apart) < len(answered):
        return f"{note}; the ids seem to fit, as the other queries rank judged documents."
    judged, found = ids or (next(iter(qrels[query_id])), next(iter(run[query_id])))
    return f"{note}: query {query_id} has a judgment of {judged} and ranks {found}; compare the ids."


def _cut_ids(judged: Iterable[str], ranked: Iterable[str]) -> tuple[str, str] | None:
    """A judged and a ranked id, one of them the other up to a separator, as d7 and d7#2; None if there are none."""
    for longer, shorter, is_judged in ((ranked, set(judged), False), (judged, set(ranked), True)):
        for doc_id in longer:
            for separator in SEPARATOR.finditer(doc_id):
                if (beginning := doc_id[: separator.start()]) in shorter:
                    return (doc_id, beginning) if is_judged else (beginning, doc_id)
    return None
