"""Makes pseudo-queries from a document: its title, one of its sentences, its most distinctive terms.

Sentences: Lee, Chang, Toutanova, "Latent Retrieval for Weakly Supervised Open Domain Question Answering", ACL 2019, the
inverse cloze task.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from rerank.data.types import Document

CHUNK = 256
"""Documents or pseudo-queries that are processed together."""
KINDS = ("title", "sentence", "keywords")

MIN_WORDS = 10
"""Words of a document that remain when the part that became the pseudo-query is hidden."""

TITLE_WORDS = (3, 30)
SENTENCE_WORDS = (5, 40)
KEYWORDS = (2, 5)  # as long as most titles of TREC topics
TERMS = 6  # the most distinctive words of a document, from which its keywords are drawn

# Not after a single letter, which is an initial or ends an abbreviation ("u.s. force", "J. Smith").
END = r"\s?[.!?]+[\"')\]]*\s+"
END_OF_SENTENCE = re.compile(r"(?<!\b\w)(?<!\b\w\s)" + END)

GetDocuments = Callable[[Sequence[str]], Iterator[Document]]
"""Gives documents by their ids, in the order asked for."""


class PseudoQuery(NamedTuple):
    """A query of one of the KINDS whose relevant document is `doc_id` with a part hidden (see `text_of`)."""

    kind: str
    text: str
    doc_id: str
    hidden: str


class Frequencies(NamedTuple):
    """The number of documents, and for each word the number of documents that contain it."""

    documents: int
    by_word: Counter[str]


class Sources(NamedTuple):
    """What pseudo-queries of a document are made from: title, numbers of sentences, terms with their tf-idf."""

    title: list[str]
    sentence: list[int]
    keywords: list[tuple[float, str]]


def words(text: str) -> list[str]:
    """Runs of letters and digits in lower case.

    >>> words("The U.S. (1991)")
    ['the', 'u', 's', '1991']
    """
    return re.findall(r"[^\W_]+", text.lower())


def sentences(body: str) -> list[str]:
    """Splits a body into sentences, without the full stops.

    >>> sentences("One of U.S. origin . Two, by J. Doe. Three?")
    ['One of U.S. origin', 'Two, by J. Doe', 'Three']
    """
    return [part for piece in END_OF_SENTENCE.split(f"{body} ") if (part := piece.strip().rstrip(".!?").strip())]


def text_of(document: Document, hidden: str) -> str:
    """The text of a document with a part hidden: "" for none, "title", or "sentence 3" (counted from 0).

    A title is also removed from the beginning of the body, and from the whole body if it is as long as a sentence.

    >>> text_of(Document("d", "On wings", "On wings. Lift and drag."), "title")
    'Lift and drag.'
    """
    whole = f"{document.title} {document.body}".strip()
    if not hidden:
        return whole
    if hidden == "title":
        return _without_title(document)
    sentence = sentences(document.body)[int(hidden.split()[1])]
    rest = re.sub(
        f"{re.escape(sentence)}(?:{END})?", " ", f"{document.body} "
    )  # with its full stop, which would show where it was
    return " ".join(f"{document.title} {rest}".split())


def _without_title(document: Document) -> str:
    title = words(document.title)
    if not title:
        return document.body.strip()
    repeated = r"(?<!\w)" + r"[\W_]+".join(map(re.escape, title)) + r"(?!\w)[\s.;:)\]]*"
    start = "" if len(title) >= SENTENCE_WORDS[0] else r"^\W*"
    return re.sub(start + repeated, " ", document.body, flags=re.IGNORECASE).strip()


def frequencies_of(texts: Iterable[str]) -> Frequencies:
    """Counts the documents of each word; reads every text once."""
    by_word: Counter[str] = Counter()
    documents = 0
    for text in texts:
        by_word.update(set(words(text)))
        documents += 1
    return Frequencies(documents, by_word)


def sources_of(document: Document, frequencies: Frequencies) -> Sources:
    """What pseudo-queries of the document can be made from; all empty if too little of the document would remain."""
    title = words(document.title)
    sources = Sources([], [], [])
    if len(words(text_of(document, ""))) < MIN_WORDS:
        return sources
    if TITLE_WORDS[0] <= len(title) <= TITLE_WORDS[1] and len(words(_without_title(document))) >= MIN_WORDS:
        sources.title.append(document.title)
    for number, sentence in enumerate(sentences(document.body)):
        length = len(words(sentence))
        rest = words(text_of(document, f"sentence {number}"))
        if SENTENCE_WORDS[0] <= length <= SENTENCE_WORDS[1] and len(rest) >= MIN_WORDS and words(sentence) != title:
            sources.sentence.append(number)
    terms = _distinctive(words(text_of(document, "")), frequencies)
    sources.keywords.extend(terms if len(terms) >= KEYWORDS[0] else [])
    return sources


def _distinctive(text: list[str], frequencies: Frequencies) -> list[tuple[float, str]]:
    """The TERMS words with the largest tf-idf, among those that occur in other documents too."""
    scored = []
    for word, times in Counter(text).items():
        documents = frequencies.by_word[word]
        if documents > 1 and len(word) > 2 and not any(letter.isdigit() for letter in word):
            scored.append((times * math.log(frequencies.documents / documents), word))
    return sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: (-pair[0], pair[1]))[:TERMS]


def usable_documents(
    doc_ids: Sequence[str],
    get: GetDocuments,
    frequencies: Frequencies,
    weights: Mapping[str, float],
    requested: int,
    seed: int,
) -> tuple[list[tuple[Document, Sources]], int]:
    """At least `requested` documents that can make a pseudo-query, if there are so many, in random order.

    Returns them with the number of documents that were examined.
    """
    order = random.Random(seed).sample(sorted(doc_ids), len(doc_ids))
    usable: list[tuple[Document, Sources]] = []
    examined = 0
    while len(usable) < requested and examined < len(order):
        chunk = order[examined : examined + CHUNK]
        for document in get(chunk):
            sources = sources_of(document, frequencies)
            if any(getattr(sources, kind) for kind, weight in weights.items() if weight > 0):
                usable.append((document, sources))
        examined += len(chunk)
    return usable, examined


def pseudo_queries(
    usable: Sequence[tuple[Document, Sources]],
    requested: int,
    weights: Mapping[str, float],
    keep_sentence: float,
    seed: int,
) -> dict[str, PseudoQuery]:
    """The requested number of pseudo-queries by query_id: one per document and turn, in a new order each turn."""
    queries: dict[str, PseudoQuery] = {}
    for turn in count():
        for document, sources in random.Random(f"{seed} {turn}").sample(usable, len(usable)):
            if len(queries) == requested:
                return queries
            query = pseudo_query(document, sources, turn, weights, keep_sentence, seed)
            if query is not None:
                queries[f"{query.kind} {turn} of {document.doc_id}"] = query
    raise AssertionError


def pseudo_query(
    document: Document, sources: Sources, turn: int, weights: Mapping[str, float], keep_sentence: float, seed: int
) -> PseudoQuery | None:
    """The pseudo-query of the document in this turn; None if it has none of a kind with a weight above 0.

    The kind is drawn by weight among those that the document has. A sentence stays in the document with probability
    `keep_sentence`. The result depends on seed, doc_id and turn alone.
    """
    rng = random.Random(f"{seed} {document.doc_id} {turn}")
    kinds = [kind for kind in KINDS if getattr(sources, kind) and weights[kind] > 0]
    if not kinds:
        return None
    kind = rng.choices(kinds, [weights[kind] for kind in kinds])[0]
    if kind == "title":
        return PseudoQuery(kind, " ".join(document.title.split()), document.doc_id, "title")
    if kind == "sentence":
        number = rng.choice(sources.sentence)
        hidden = "" if rng.random() < keep_sentence else f"sentence {number}"
        return PseudoQuery(kind, " ".join(sentences(document.body)[number].split()), document.doc_id, hidden)
    return PseudoQuery(kind, _keywords(document, sources, rng), document.doc_id, "")


def _keywords(document: Document, sources: Sources, rng: random.Random) -> str:
    """Terms drawn without replacement, weighted by tf-idf, in the order of the document."""
    count = min(rng.randint(*KEYWORDS), len(sources.keywords))
    # Efraimidis and Spirakis 2006: the largest u^(1/w) are a weighted draw without replacement.
    drawn = sorted(sources.keywords, key=lambda pair: rng.random() ** (1 / pair[0]), reverse=True)[:count]
    chosen = {term for _, term in drawn}
    return " ".join(dict.fromkeys(word for word in words(text_of(document, "")) if word in chosen))
