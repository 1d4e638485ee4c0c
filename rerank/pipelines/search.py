"""Searches with a fitted pipeline: the hits of one query, with their snippets and what each stage says of them."""

from rerank.data.queries import check_query
from rerank.data.trec import ranked
from rerank.data.types import Document, Hit, Run
from rerank.evaluation.fusion import place_above
from rerank.pipelines.fitted import Fitted
from rerank.retrieval.snippets import snippet
from rerank.retrieval.words import find_words
from rerank.stages.base import below

QUERY = "query"
"""The id of the query that is asked."""


def search(pipeline: Fitted, query: str, top: int = 10) -> list[Hit]:
    """The best `top` documents for a query, best first; [] if no stage finds one.

    A snippet is of the passage that a cross-encoder scored highest, if one answers, and otherwise of the whole text.
    Raises UserError for a query without text. Neither logs nor errors have the query.
    """
    check_query(query)
    world, spans = pipeline.world, dict[str, tuple[int, int]]()
    runs = dict[str, Run]()
    for name, settings in pipeline.stages.items():
        ranker = pipeline.rankers[name]
        under = [runs[one] for one in below(settings)]
        rank_passages = getattr(ranker, "rank_passages", None)
        if name == pipeline.answer and rank_passages and under[0].get(QUERY):
            best = rank_passages(query, under[0][QUERY])
            spans = {doc_id: (found.begin, found.end) for doc_id, found in best.items()}
            scores = {doc_id: found.score for doc_id, found in best.items()}
            runs[name] = place_above({QUERY: scores}, under[0])
        else:
            runs[name] = ranker.rank({QUERY: query}, under)
    answer = runs[pipeline.answer].get(QUERY, {})
    doc_ids = ranked(answer)[:top]
    language = world.config.collection.language
    terms = {word.term for word in find_words(query, language)}
    ranks = {name: {d: rank for rank, d in enumerate(ranked(run.get(QUERY, {})), 1)} for name, run in runs.items()}
    hits = []
    for rank, document in enumerate(world.texts.get(doc_ids), 1):
        doc_id = document.doc_id
        title, body = _title_and_body(document, spans.get(doc_id))
        of_stages = {
            name: (places[doc_id], runs[name][QUERY][doc_id]) for name, places in ranks.items() if doc_id in places
        }
        shown = snippet(title, terms, language), snippet(body, terms, language)
        hits.append(Hit(doc_id, rank, answer[doc_id], *shown, of_stages))
    return hits


def _title_and_body(document: Document, span: tuple[int, int] | None) -> tuple[str, str]:
    """The title, and the text of a passage, or of the whole body, without the title, which is shown already."""
    body = len(document.text) - len(document.body)
    begin, end = span or (0, len(document.text))
    return document.title, document.text[max(begin, min(body, end)) : end]
