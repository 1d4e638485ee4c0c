"""Training lists of pseudo-queries: the document that the query was made from, its source, among negatives.

Negatives are documents that BM25 ranks high for the pseudo-query, and random ones.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.data.types import Document, Run
from rerank.jobs.pretraining.pseudo_queries import (
    CHUNK,
    MIN_WORDS,
    GetDocuments,
    PseudoQuery,
    pseudo_queries,
    rarities_of,
    text_of,
    usable_documents,
    words,
)
from rerank.retrieval.bm25 import Searcher
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.progress import log, progress

HARD_NEGATIVES, DEPTH, RANDOM_NEGATIVES, HELD_OUT_NEGATIVES = 3, 50, 1, 9
"""Negatives of a training list: from the first DEPTH documents of BM25, and from all documents; of a held-out list."""
SPARE = 3  # random documents drawn beyond those requested, as some are too short
MIN_DOCUMENTS = 10
SHINGLE, MIN_SIMILARITY = 3, 0.5


class PseudoList(NamedTuple):
    """A pseudo-query and its documents in random order; their texts lack a title that became the query."""

    query: PseudoQuery
    texts: Sequence[str]
    labels: Sequence[int]


def make_pseudo_lists(
    config: Config, collection: Collection, index: Path
) -> tuple[Iterator[PseudoList], Iterator[PseudoList]]:
    """As many training lists as the settings ask for, and held-out lists, whose sources are in no training list.

    Queries, judgments and folds are not read. Raises UserError if fewer than MIN_DOCUMENTS can be used.
    """
    settings, seed = config.pretraining, config.training.seed
    total = settings.steps * settings.lists_per_step
    documents = progress(collection.documents(), collection.count(), "counting words")
    doc_ids, rarities = rarities_of(documents)
    usable, examined = usable_documents(doc_ids, collection.get, rarities, total + settings.held_out, seed)
    enough = f"{len(usable)} of {examined} documents can make pseudo-queries"
    if len(usable) < MIN_DOCUMENTS:
        raise UserError(
            f"{collection.source}: {enough}, expected {MIN_DOCUMENTS} or more: the others have fewer than "
            f"{MIN_WORDS} words, or nothing to take one from; train without pseudo-queries, or on more documents"
        )
    log.info(f"{collection.source}: {enough}")
    held_out = usable[: min(settings.held_out, len(usable) // 5)]
    train = usable[len(held_out) :]
    of_train = pseudo_queries(train, total, seed)
    of_held_out = pseudo_queries(held_out, len(held_out), seed)
    asked = {query_id: query.text for query_id, query in (of_train | of_held_out).items()}
    first = config.first_stage
    searcher = Searcher(index, first.k1, first.b, config.collection.language)
    ranked = searcher.search(asked, DEPTH, first.threads or None)
    reserved = {document.doc_id for document, _ in held_out}
    allowed = sorted(doc_id for doc_id in doc_ids if doc_id not in reserved)
    return (
        make_lists(of_train, ranked, allowed, collection.get, HARD_NEGATIVES, RANDOM_NEGATIVES, seed),
        make_lists(of_held_out, ranked, sorted(doc_ids), collection.get, HELD_OUT_NEGATIVES, 0, seed),
    )


def write_lists(file: Path, lists: Iterable[PseudoList], once: bool = False) -> None:
    """Writes a file of training lists by text, with `once` the first list of each pseudo-query; UserError for none."""
    texts, titles = Counter[str](), 0
    with atomic_write(file) as tmp, tmp.open("w", encoding="utf-8") as out:
        for (text, _, is_title), documents, labels in lists:
            if once and text in texts:
                continue
            texts[text] += 1
            titles += is_title
            record = {"query": text, "documents": documents, "labels": labels}
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
        if not texts:
            raise UserError(f"{file}: no pseudo-query has a negative document; expected more documents")
    log.info(f"{file}: {texts.total()} lists of pseudo-queries ({titles} titles, the others keywords)")


def make_lists(
    queries: Mapping[str, PseudoQuery],
    ranked: Run,
    allowed: Sequence[str],
    get: GetDocuments,
    hard_count: int,
    random_count: int,
    seed: int,
) -> Iterator[PseudoList]:
    """A list for each pseudo-query that has negatives: its source, labelled 1, among these, labelled 0, shuffled.

    Negatives come from `allowed`, hard ones from BM25's documents, `ranked`.
    """
    within = set(allowed)
    chunks = [list(queries)[first : first + CHUNK] for first in range(0, len(queries), CHUNK)]
    for chunk in progress(chunks, len(chunks), "lists"):
        rngs = {query_id: random.Random(f"{seed} negatives of {query_id}") for query_id in chunk}
        hard = {query_id: [doc_id for doc_id in ranked.get(query_id, {}) if doc_id in within] for query_id in chunk}
        drawn = min(len(allowed), hard_count + random_count + SPARE)
        others = {query_id: rngs[query_id].sample(allowed, drawn) for query_id in chunk}
        needed = sorted({i for q in chunk for i in (queries[q].doc_id, *hard[q], *others[q])})
        documents = {document.doc_id: document for document in get(needed)}
        for query_id in chunk:
            query, rng = queries[query_id], rngs[query_id]
            found = select_negatives(query, hard[query_id], others[query_id], documents, hard_count, random_count, rng)
            texts = list(found.values())
            if not texts:
                continue
            place = rng.randint(0, len(texts))  # random: losses may break ties by position
            texts.insert(place, text_of(documents[query.doc_id], query.is_title))
            yield PseudoList(query, texts, [int(number == place) for number in range(len(texts))])


def select_negatives(
    query: PseudoQuery,
    hard: Sequence[str],
    others: Sequence[str],
    documents: Mapping[str, Document],
    hard_count: int,
    random_count: int,
    rng: random.Random,
) -> dict[str, str]:
    """doc_id to text of up to `hard_count` documents of `hard` and `random_count` of `others`, with different texts.

    Missing hard negatives are replaced by others. The source, its near-duplicates and short documents are left out. For
    a title the titles of all negatives are hidden, or else their presence would tell them from the source.
    """
    whole, shown = (text_of(documents[query.doc_id], hide_title) for hide_title in (False, query.is_title))
    chosen: dict[str, str] = {}
    for doc_ids, total in ((rng.sample(hard, len(hard)), hard_count), (others, hard_count + random_count)):
        for doc_id in doc_ids:
            if len(chosen) >= total:
                break
            text = text_of(documents[doc_id], query.is_title)
            again = doc_id in (query.doc_id, *chosen) or text in (shown, *chosen.values())
            if again or len(words(text)) < MIN_WORDS:
                continue
            if not near_duplicate(query, whole, text_of(documents[doc_id], False)):
                chosen[doc_id] = text
    return chosen


def near_duplicate(query: PseudoQuery, source: str, other: str) -> bool:
    """Whether a text answers the pseudo-query as well as that of its source.

    It does if half of their shingles of three words are common (Jaccard, Broder 1997), or if it contains the title.
    """
    source_words, other_words = words(source), words(other)
    if query.is_title and f" {' '.join(words(query.text))} " in f" {' '.join(other_words)} ":
        return True
    first, second = (
        {tuple(text[i : i + SHINGLE]) for i in range(max(1, len(text) - SHINGLE + 1))}
        for text in (source_words, other_words)
    )
    return len(first & second) >= MIN_SIMILARITY * len(first | second)
