"""Makes pseudo-queries from a document: its title, or its most distinctive terms."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import NamedTuple

from rerank.data.types import Document

CHUNK = 256  # documents or pseudo-queries that are processed together
TITLES = 2 / 3  # the share of titles among the pseudo-queries of documents that have one
MIN_WORDS = 10  # of a document, that remain when the title that became the pseudo-query is hidden
TITLE_WORDS = (3, 30)
LONG_TITLE = 5  # words; a shorter title may be a phrase of the body that is no repetition
KEYWORDS = (2, 5)  # as long as most titles of TREC topics
TERMS = 6  # the most distinctive words of a document, from which its keywords are drawn

GetDocuments = Callable[[Sequence[str]], Iterator[Document]]
"""Gives documents by their ids, in the order asked for."""


class PseudoQuery(NamedTuple):
    """A query whose relevant document is `doc_id`, with its title hidden if that is the query."""

    text: str
    doc_id: str
    is_title: bool


class Sources(NamedTuple):
    """What pseudo-queries of a document are made from: its title, "" if none can be, and terms with their tf-idf."""

    title: str
    keywords: list[tuple[float, str]]


def words(text: str) -> list[str]:
    """Runs of letters and digits in lower case: "The U.S. (1991)" has the, u, s and 1991."""
    return re.findall(r"[^\W_]+", text.lower())


def text_of(document: Document, hide_title: bool) -> str:
    """The text of a document, without its title if that is to be hidden.

    A title is also removed from the beginning of the body, and from the whole body if it is long.
    """
    title = words(document.title)
    if not hide_title:
        return f"{document.title} {document.body}".strip()
    if not title:
        return document.body.strip()
    repeated = r"(?<!\w)" + r"[\W_]+".join(map(re.escape, title)) + r"(?!\w)[\s.;:)\]]*"
    start = "" if len(title) >= LONG_TITLE else r"^\W*"
    return re.sub(start + repeated, " ", document.body, flags=re.IGNORECASE).strip()


def rarities_of(documents: Iterable[Document]) -> tuple[list[str], dict[str, float]]:
    """The ids of documents, and the idf of words that may be keywords; reads each document once.

    These words have three letters or more and no digits, and occur in several documents, but not in all.
    """
    by_word, doc_ids = Counter[str](), []
    for document in documents:
        by_word.update(set(words(document.text)))
        doc_ids.append(document.doc_id)
    rarities = {
        word: math.log(len(doc_ids) / count)
        for word, count in by_word.items()
        if 1 < count < len(doc_ids) and len(word) > 2 and not any(letter.isdigit() for letter in word)
    }
    return doc_ids, rarities


def sources_of(document: Document, rarities: Mapping[str, float]) -> Sources:
    """What pseudo-queries of the document can be made from; all empty if too little of the document would remain."""
    text, length = words(text_of(document, hide_title=False)), len(words(document.title))
    if len(text) < MIN_WORDS:
        return Sources("", [])
    remains = len(words(text_of(document, hide_title=True))) >= MIN_WORDS
    title = " ".join(document.title.split()) if TITLE_WORDS[0] <= length <= TITLE_WORDS[1] and remains else ""
    scored = [(times * rarities[word], word) for word, times in Counter(text).items() if word in rarities]
    terms = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:TERMS]
    return Sources(title, terms if len(terms) >= KEYWORDS[0] else [])


def usable_documents(
    doc_ids: Sequence[str], get: GetDocuments, rarities: Mapping[str, float], requested: int, seed: int
) -> tuple[list[tuple[Document, Sources]], int]:
    """At least `requested` documents that can make a pseudo-query, in random order, and how many were examined."""
    order = random.Random(seed).sample(sorted(doc_ids), len(doc_ids))
    usable, examined = list[tuple[Document, Sources]](), 0
    while len(usable) < requested and (chunk := order[examined : examined + CHUNK]):
        found = ((document, sources_of(document, rarities)) for document in get(chunk))
        usable += [(document, sources) for document, sources in found if any(sources)]
        examined += len(chunk)
    return usable, examined


def pseudo_queries(usable: Sequence[tuple[Document, Sources]], requested: int, seed: int) -> dict[str, PseudoQuery]:
    """The requested number of pseudo-queries by query_id: one per document and turn, in a new order each turn."""
    turns = ((turn, *pair) for turn in count() for pair in random.Random(f"{seed} {turn}").sample(usable, len(usable)))
    return {
        f"{turn} of {document.doc_id}": pseudo_query(document, sources, turn, seed)
        for turn, document, sources in islice(turns, requested)
    }


def pseudo_query(document: Document, sources: Sources, turn: int, seed: int) -> PseudoQuery:
    """The pseudo-query of the document in this turn: its title, or terms drawn by tf-idf, in its order."""
    rng = random.Random(f"{seed} {document.doc_id} {turn}")
    if sources.title and (not sources.keywords or rng.random() < TITLES):
        return PseudoQuery(sources.title, document.doc_id, is_title=True)
    size = min(rng.randint(*KEYWORDS), len(sources.keywords))
    # Efraimidis and Spirakis 2006: the largest u^(1/w) are a weighted draw without replacement.
    drawn = sorted(sources.keywords, key=lambda pair: rng.random() ** (1 / pair[0]), reverse=True)[:size]
    chosen = {term for _, term in drawn}
    text = " ".join(dict.fromkeys(word for word in words(text_of(document, hide_title=False)) if word in chosen))
    return PseudoQuery(text, document.doc_id, is_title=False)
