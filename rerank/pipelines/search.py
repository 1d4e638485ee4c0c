"""Searches with a fitted pipeline: the hits of one query, with their snippets and what each stage says of them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rerank.data.queries import check_query
from rerank.data.trec import ranked
from rerank.data.types import Document, Hit, Marked, Run
from rerank.pipelines.fitted import Fitted
from rerank.retrieval.words import find_words, snippet
from rerank.stages.base import Ranker
from rerank.stages.cross_encoder import CrossEncoderRanker
from rerank.stages.late_interaction import LateInteractionRanker

if TYPE_CHECKING:
    from rerank.models.reranker import BestPassage
    from rerank.tasks.late_interaction import LateInteraction

QUERY = "query"
"""The id of the query that is asked."""


def search(
    pipeline: Fitted, query: str, top: int = 10, budget: float | None = None, explain: bool = False
) -> list[Hit]:
    """The best `top` documents for a query, best first; [] if no stage finds one.

    To `explain` is to find the matches of a hit, if a stage compares tokens; they are marked in its snippet, which is
    where most of them are. With a `budget` of milliseconds, the last stage that ends in time answers
    (`Fitted.rank_all`); it is the last of `stages` of a hit. A snippet is of the passage that a cross-encoder scored
    highest, if one answers, and otherwise of the whole text. Raises UserError for a query without text. Neither logs
    nor errors have the query.
    """
    check_query(query)
    world = pipeline.world
    passages: dict[str, BestPassage] = {}

    def rank_with(ranker: Ranker, queries: Mapping[str, str], under: Sequence[Run]) -> Run:
        passages.clear()
        if not isinstance(ranker, CrossEncoderRanker) or not under[0].get(QUERY):
            return ranker.rank(queries, under)
        run, best = ranker.rank_one(QUERY, query, under[0][QUERY])
        passages.update(best)
        return run

    runs = pipeline.rank_all({QUERY: query}, rank_with, budget)
    answer = list(runs.values())[-1].get(QUERY, {})
    doc_ids = ranked(answer)[:top]
    language = world.config.collection.language
    terms = {word.term for word in find_words(query, language)}
    matcher = _matcher(pipeline, runs) if explain else None
    ranks = {name: {d: rank for rank, d in enumerate(ranked(run.get(QUERY, {})), 1)} for name, run in runs.items()}
    documents = list(world.texts.get(doc_ids))
    found = matcher.matches(query, documents) if matcher else [{}] * len(documents)
    hits = []
    for rank, (document, pairs) in enumerate(zip(documents, found, strict=True), 1):
        doc_id = document.doc_id
        begin, end = _place(document, passages.get(doc_id))
        matches = _without_stop_words(pairs, language)
        matched = terms.union(*matches.values())
        title = snippet(document.title, matched, language)
        part = snippet(document.body[begin:end], matched, language)
        if doc_id not in passages:
            begin, end = _place_of_snippet(part.text, document.body)
        text = Marked(document.body, ((begin, end),) if begin < end else ())
        of_stages = {
            name: (places[doc_id], runs[name][QUERY][doc_id]) for name, places in ranks.items() if doc_id in places
        }
        hits.append(Hit(doc_id, rank, answer[doc_id], title, part, of_stages, text, tuple(matches)))
    return hits


def _matcher(pipeline: Fitted, runs: Mapping[str, Run]) -> "LateInteraction | None":
    """The late interaction of the last stage with one that has ranked; None without."""
    rankers = [pipeline.rankers[name] for name in runs]
    found = [ranker.matcher for ranker in rankers if isinstance(ranker, LateInteractionRanker)]
    return found[-1] if found else None


def _without_stop_words(matches: Mapping[str, str], language: str) -> dict[tuple[str, str], set[str]]:
    """The pairs of a word of a query and one of a document, each with the terms of the latter."""
    found = {}
    for word, match in matches.items():
        terms = {one.term for one in find_words(match, language)}
        if terms and find_words(word, language):
            found[word, match] = terms
    return found


def _place(document: Document, passage: "BestPassage | None") -> tuple[int, int]:
    """Where a passage begins and ends in the body; without one, the body. The title before it is shown already."""
    if passage is None:
        return 0, len(document.body)
    before = len(document.text) - len(document.body)
    return max(0, passage.begin - before), max(0, passage.end - before)


def _place_of_snippet(shown: str, body: str) -> tuple[int, int]:
    """Where a snippet, which has single spaces and may have dots around it, begins and ends in the body."""
    snippet_words = " ".join(shown.removeprefix("… ").removesuffix(" …").split())
    words = list(re.finditer(r"\S+", body))
    text = " ".join(word[0] for word in words)
    begin = text.find(snippet_words)
    if begin < 0 or not snippet_words:
        return 0, 0

    def place_in_body(at: int) -> int:
        word = words[text.count(" ", 0, at)]
        return word.start() + at - (text.rfind(" ", 0, at) + 1)

    return place_in_body(begin), place_in_body(begin + len(snippet_words) - 1) + 1
