"""Makes the lists of a pre-training from the documents and the index of a collection; nothing else of it is read."""

from collections.abc import Iterator
from pathlib import Path

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.experiments.pretraining.lists import (
    PseudoLists,
    make_lists,
    pseudo_queries,
    usable_documents,
    with_bm25_labels,
)
from rerank.experiments.pretraining.pseudo_queries import KINDS, MIN_WORDS, frequencies_of
from rerank.retrieval.bm25 import search
from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress

MIN_DOCUMENTS = 10
HELD_OUT_NEGATIVES = 9


def make_pseudo_lists(config: Config, collection: Collection, index: Path) -> PseudoLists:
    """As many training lists as the settings ask for, and held-out lists of a source and HELD_OUT_NEGATIVES negatives.

    Held-out documents are in no training list. Raises UserError if fewer than MIN_DOCUMENTS can be used.
    """
    settings, seed = config.pretraining, config.training.seed
    weights, total = settings.weights(), settings.steps * settings.lists_per_step
    doc_ids: list[str] = []

    def texts() -> Iterator[str]:
        for document in progress(collection.documents(), collection.count(), "counting words"):
            doc_ids.append(document.doc_id)
            yield document.text

    frequencies = frequencies_of(texts())
    requested = total + settings.held_out
    usable, examined = usable_documents(doc_ids, collection.get, frequencies, weights, requested, seed)
    enough = f"{len(usable)} of {examined} documents can make pseudo-queries"
    kinds = ", ".join(kind for kind in KINDS if weights[kind] > 0)
    if len(usable) < MIN_DOCUMENTS:
        raise UserError(
            f"{collection.source}: {enough} ({kinds}), expected {MIN_DOCUMENTS} or more: the others have fewer than "
            f"{MIN_WORDS} words, or nothing to take one from; train without pseudo-queries, or on more documents"
        )
    held_out = usable[: min(settings.held_out, len(usable) // 5)]
    train = usable[len(held_out) :]
    reserved = {document.doc_id for document, _ in held_out}
    train_queries = pseudo_queries(train, total, weights, settings.keep_sentence, seed)
    held_out_queries = pseudo_queries(held_out, len(held_out), weights, settings.keep_sentence, seed)
    queries = train_queries | held_out_queries
    texts_by_id = {query_id: query.text for query_id, query in queries.items()}
    first = config.first_stage
    threads, language = first.threads or None, config.collection.language
    ranked = search(index, texts_by_id, settings.depth, first.k1, first.b, threads, language)
    allowed = sorted(doc_id for doc_id in doc_ids if doc_id not in reserved)
    get, hard, others = collection.get, settings.hard_negatives, settings.random_negatives
    training_lists = make_lists(train_queries, ranked, allowed, get, hard, others, seed)
    if settings.labels == "bm25":
        training_lists = with_bm25_labels(training_lists, ranked)
    lists = PseudoLists(
        texts_by_id,
        {query_id: query.kind for query_id, query in queries.items()},
        training_lists,
        make_lists(held_out_queries, ranked, sorted(doc_ids), get, HELD_OUT_NEGATIVES, 0, seed),
    )
    made = [lists.kinds[candidates.query_id] for candidates in lists.train]
    mixture = ", ".join(f"{made.count(kind)} {kind}" for kind in KINDS if kind in made)
    log.info(f"pre-training: {enough}; {len(lists.train)} training lists ({mixture}), {len(lists.held_out)} held out")
    if not lists.train or not lists.held_out:
        raise UserError(f"{collection.source}: no pseudo-query has a negative document; expected more documents")
    return lists
