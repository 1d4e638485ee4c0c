"""Documents and an index -> the pseudo-queries and lists of a pre-training; nothing else of a collection is read."""

from collections.abc import Iterator
from pathlib import Path

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.errors import UserError
from rerank.experiments.pretraining.lists import PseudoLists, make_lists, pseudo_queries, usable_documents
from rerank.experiments.pretraining.pseudo_queries import KINDS, LEAST_WORDS, frequencies_of
from rerank.retrieval.bm25 import search
from rerank.utils.progress import log, progress

LEAST_DOCUMENTS = 10
HELD_OUT_NEIGHBOURS = 9


def make_pseudo_lists(config: Config, collection: Collection, index: Path) -> PseudoLists:
    """As many training lists as the settings ask for, and held-out lists of a source and HELD_OUT_NEIGHBOURS others.

    Held-out documents are in no training list. Raises UserError where fewer than LEAST_DOCUMENTS can be used.
    """
    table, seed = config.pretraining, config.training.seed
    weights, total = table.weights(), table.steps * table.lists_per_step
    doc_ids: list[str] = []

    def texts() -> Iterator[str]:
        for document in progress(collection.documents(), collection.count(), "counting words"):
            doc_ids.append(document.doc_id)
            yield document.text

    frequencies = frequencies_of(texts())
    wanted = total + table.held_out
    usable, looked_at = usable_documents(doc_ids, collection.get, frequencies, weights, wanted, seed)
    enough = f"{len(usable)} of {looked_at} documents can make pseudo-queries"
    asked = ", ".join(kind for kind in KINDS if weights[kind] > 0)
    if len(usable) < LEAST_DOCUMENTS:
        raise UserError(
            f"{collection.source}: {enough} ({asked}), expected {LEAST_DOCUMENTS} or more: the others have fewer than "
            f"{LEAST_WORDS} words, or nothing to take one from; train without --pretraining.steps, or on more documents"
        )
    held_out = usable[: min(table.held_out, len(usable) // 5)]
    train = usable[len(held_out) :]
    apart = {document.doc_id for document, _ in held_out}
    queries = {
        "train": pseudo_queries(train, total, weights, table.keep_sentence, seed),
        "held out": pseudo_queries(held_out, len(held_out), weights, table.keep_sentence, seed),
    }
    everything = queries["train"] | queries["held out"]
    asked_of_index = {query_id: query.text for query_id, query in everything.items()}
    first = config.first_stage
    found = search(index, asked_of_index, table.depth, first.k1, first.b, first.threads or None)
    allowed = sorted(doc_id for doc_id in doc_ids if doc_id not in apart)
    lists = PseudoLists(
        asked_of_index,
        {query_id: query.kind for query_id, query in everything.items()},
        make_lists(queries["train"], found, allowed, collection.get, table.neighbours, table.random, seed),
        make_lists(queries["held out"], found, sorted(doc_ids), collection.get, HELD_OUT_NEIGHBOURS, 0, seed),
    )
    kinds = [lists.kinds[candidates.query_id] for candidates in lists.train]
    mixture = ", ".join(f"{kinds.count(kind)} {kind}" for kind in KINDS if kind in kinds)
    log.info(f"pre-training: {enough}; {len(lists.train)} training lists ({mixture}), {len(lists.held_out)} held out")
    if not lists.train or not lists.held_out:
        raise UserError(f"{collection.source}: no pseudo-query has a document to be told from; expected more documents")
    return lists
