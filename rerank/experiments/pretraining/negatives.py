"""The documents that a pseudo-query's source is to be ranked above: BM25's neighbours of the query, and random ones."""

import random
from collections.abc import Mapping, Sequence

from rerank.experiments.pretraining.pseudo_queries import LEAST_WORDS, PseudoQuery, shown, text_of, words
from rerank.types import Document

SHINGLE = 3
ALIKE = 0.5


def near_duplicate(query: PseudoQuery, source: str, other: str) -> bool:
    """Whether `other` answers the pseudo-query as well as its source, by their texts.

    It does where half of their shingles of three words are common (Jaccard, Broder 1997), and where it has a title or a
    sentence word for word: a series of articles with one title, a news item that quotes another.
    """
    mine, its = words(source), words(other)
    if query.kind != "keywords" and f" {' '.join(words(query.text))} " in f" {' '.join(its)} ":
        return True
    first, second = _shingles(mine), _shingles(its)
    return len(first & second) >= ALIKE * len(first | second)


def _shingles(found: list[str]) -> set[tuple[str, ...]]:
    return {tuple(found[i : i + SHINGLE]) for i in range(max(1, len(found) - SHINGLE + 1))}


def negatives_of(
    query: PseudoQuery,
    neighbours: Sequence[str],
    others: Sequence[str],
    documents: Mapping[str, Document],
    count: int,
    random_count: int,
    rng: random.Random,
) -> list[str]:
    """The variants (see `shown`) of up to `count` of the neighbours and of `random_count` of the others.

    Neighbours that lack are made up for by others. The source and its near-duplicates are left out. Where the query is
    a title all are shown without theirs, or else the title alone would tell them from the source; those of which too
    little is left are left out.
    """
    without = "title" if query.kind == "title" else ""
    source = text_of(documents[query.doc_id], "")
    chosen: list[str] = []

    def take(doc_ids: Sequence[str], wanted: int) -> None:
        for doc_id in doc_ids:
            if len(chosen) >= wanted:
                return
            document = documents[doc_id]
            if doc_id == query.doc_id or shown(doc_id, without) in chosen:
                continue
            if len(words(text_of(document, without))) < LEAST_WORDS:
                continue
            if not near_duplicate(query, source, text_of(document, "")):
                chosen.append(shown(doc_id, without))

    take(rng.sample(neighbours, len(neighbours)), count)
    take(others, count + random_count)
    return chosen
