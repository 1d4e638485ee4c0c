"""Negatives of a pseudo-query: documents that BM25 ranks high for it, and random ones."""

import random
from collections.abc import Mapping, Sequence

from rerank.data.types import Document
from rerank.experiments.pretraining.pseudo_queries import MIN_WORDS, PseudoQuery, text_of, variant_id, words

SHINGLE = 3
MIN_SIMILARITY = 0.5


def near_duplicate(query: PseudoQuery, source: str, other: str) -> bool:
    """Whether the text `other` answers the pseudo-query as well as the text of its source does.

    It does if half of their shingles of three words are common (Jaccard, Broder 1997), or if it contains a title or a
    sentence word for word: a series of articles with one title, a news item that quotes another.
    """
    source_words, other_words = words(source), words(other)
    if query.kind != "keywords" and f" {' '.join(words(query.text))} " in f" {' '.join(other_words)} ":
        return True
    first, second = _shingles(source_words), _shingles(other_words)
    return len(first & second) >= MIN_SIMILARITY * len(first | second)


def _shingles(text: list[str]) -> set[tuple[str, ...]]:
    return {tuple(text[i : i + SHINGLE]) for i in range(max(1, len(text) - SHINGLE + 1))}


def select_negatives(
    query: PseudoQuery,
    hard: Sequence[str],
    others: Sequence[str],
    documents: Mapping[str, Document],
    hard_count: int,
    random_count: int,
    rng: random.Random,
) -> list[str]:
    """The variants (see `variant_id`) of up to `hard_count` documents of `hard` and `random_count` of `others`.

    Missing hard negatives are replaced by others. The source and its near-duplicates are left out. For a title the
    titles of all negatives are hidden, or else their presence would tell them from the source; documents of which too
    little remains are left out.
    """
    hidden = "title" if query.kind == "title" else ""
    source = text_of(documents[query.doc_id], "")
    chosen: list[str] = []

    def take(doc_ids: Sequence[str], total: int) -> None:
        for doc_id in doc_ids:
            if len(chosen) >= total:
                return
            document = documents[doc_id]
            if doc_id == query.doc_id or variant_id(doc_id, hidden) in chosen:
                continue
            if len(words(text_of(document, hidden))) < MIN_WORDS:
                continue
            if not near_duplicate(query, source, text_of(document, "")):
                chosen.append(variant_id(doc_id, hidden))

    take(rng.sample(hard, len(hard)), hard_count)
    take(others, hard_count + random_count)
    return chosen
