"""Searches a collection for one query: BM25 retrieves, a trained model re-ranks, and each document gets a snippet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rerank.config import Config, FirstStageSettings
from rerank.data.collections import Collection
from rerank.data.queries import check_query
from rerank.data.types import Document, Hit
from rerank.models.checkpoints import saved_settings
from rerank.models.rankings import BestPassage
from rerank.models.reranker import Reranker
from rerank.retrieval.bm25 import search_one
from rerank.retrieval.snippets import snippet
from rerank.retrieval.words import find_words
from rerank.tasks.first_stage import documents_and_index
from rerank.tasks.trained_on import as_trained, open_trained_on
from rerank.utils.progress import log

TOP = 10
"""The documents that a search shows."""

RankPassages = Callable[[str, Sequence[str], int, Sequence[float]], Sequence[BestPassage]]
"""Ranks texts as `Reranker.rank_passages` does: (query, texts, top, first-stage scores) -> the best of them."""


@dataclass(frozen=True)
class SearchedCollection:
    """A collection of text with an index of it, and how BM25 searches that."""

    collection: Collection
    index: Path
    first_stage: FirstStageSettings
    language: str


def open_searched(config: Config) -> SearchedCollection:
    """The collection of the settings and its index, built unless it exists; no query or judgment is read.

    Raises UserError for invalid settings, and if the documents or the index cannot be had.
    """
    collection, index = documents_and_index(config)
    # Before the first query waits for it: where the documents are, and Java.
    list(collection.get([]))
    find_words("", config.collection.language)
    return SearchedCollection(collection, index, config.first_stage, config.collection.language)


def as_model_was_trained(config: Config, checkpoint: str, model: Reranker) -> Config:
    """The settings with the collection that a checkpoint was trained on, and its language.

    Raises UserError if the checkpoint does not record it, or it cannot be opened.
    """
    saved = saved_settings(model.model)
    source = open_trained_on(checkpoint, saved).source
    return replace(config, collection=replace(as_trained(config.collection, saved), source=source))


def say_other_first_stage(model: Reranker) -> None:
    """Logs that a search adds BM25's scores, if the model was trained to add those of another first stage."""
    first_stage = saved_settings(model.model).get("first_stage")
    if first_stage:
        log.info(
            f"this model was trained to add the scores of {first_stage}; a search adds BM25's, so documents may rank "
            "in another order"
        )


def search(query: str, searched: SearchedCollection, rank_passages: RankPassages, top: int = TOP) -> list[Hit]:
    """The best `top` of the documents that BM25 retrieves for a query, as a model ranks them, best first.

    [] if no document has a word of the query. Documents of equal score stay in BM25's order. Raises UserError for a
    query without text, for a document that the collection does not have, and for a score that is not finite. Neither
    logs nor errors have the query.
    """
    check_query(query)
    settings, language = searched.first_stage, searched.language
    found = search_one(searched.index, query, settings.depth, settings.k1, settings.b, language)
    if not found:
        return []
    doc_ids, first_scores = list(found), list(found.values())
    documents = list(searched.collection.get(doc_ids))
    terms = {word.term for word in find_words(query, language)}
    hits = []
    texts = [document.text for document in documents]
    for rank, best in enumerate(rank_passages(query, texts, top, first_scores), 1):
        title, body = _title_and_passage(documents[best.index], best)
        hits.append(
            Hit(
                doc_ids[best.index],
                rank,
                best.score,
                best.index + 1,
                first_scores[best.index],
                snippet(title, terms, language),
                snippet(body, terms, language),
            )
        )
    return hits


def _title_and_passage(document: Document, best: BestPassage) -> tuple[str, str]:
    """The title, and the text of the passage without the title, which is shown already."""
    body = len(document.text) - len(document.body)
    return document.title, document.text[max(best.begin, min(body, best.end)) : best.end]
