"""A document -> pseudo-queries: its title, a sentence of it, its most distinctive terms. No query, no judgment.

Sentences: Lee, Chang, Toutanova, "Latent Retrieval for Weakly Supervised Open Domain Question Answering", ACL 2019, the
inverse cloze task.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rerank.types import Document

KINDS = ("title", "sentence", "keywords")

LEAST_WORDS = 10  # of the text that is to be found, without what the pseudo-query took away
TITLE_WORDS = (3, 30)
SENTENCE_WORDS = (5, 40)
KEYWORDS = (2, 5)  # the words of most topic titles
TERMS = 6  # the most distinctive ones of a document, of which its keywords are drawn
WITHOUT = " without "  # no doc_id holds white space

# Not behind a single letter, which is an initial or ends an abbreviation ("u.s. force", "J. Smith").
END = r"\s?[.!?]+[\"')\]]*\s+"
END_OF_SENTENCE = re.compile(r"(?<!\b\w)(?<!\b\w\s)" + END)


class PseudoQuery(NamedTuple):
    """A query of one of the KINDS whose answer is the document `doc_id`, shown without a part: see `text_of`."""

    kind: str
    text: str
    doc_id: str
    without: str


class Frequencies(NamedTuple):
    """How many documents there are, and how many have each word."""

    documents: int
    of: Counter[str]


class Sources(NamedTuple):
    """What a document can make pseudo-queries of: its title, the numbers of its sentences, its terms with tf-idf."""

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
    """The body in sentences, without the full stops.

    >>> sentences("One of U.S. origin . Two, by J. Doe. Three?")
    ['One of U.S. origin', 'Two, by J. Doe', 'Three']
    """
    return [part for piece in END_OF_SENTENCE.split(f"{body} ") if (part := piece.strip().rstrip(".!?").strip())]


def text_of(document: Document, without: str) -> str:
    """The document's text: all of it for "", or without its "title", or without its "sentence 3" (counted from 0).

    A title is also removed where the body begins with it, and all over the body if it is as long as a sentence.

    >>> text_of(Document("d", "On wings", "On wings. Lift and drag."), "title")
    'Lift and drag.'
    """
    whole = f"{document.title} {document.body}".strip()
    if not without:
        return whole
    if without == "title":
        return _without_title(document)
    sentence = sentences(document.body)[int(without.split()[1])]
    rest = re.sub(f"{re.escape(sentence)}(?:{END})?", " ", f"{document.body} ")  # no stop is left to tell its place
    return " ".join(f"{document.title} {rest}".split())


def _without_title(document: Document) -> str:
    title = words(document.title)
    if not title:
        return document.body.strip()
    repeated = r"(?<!\w)" + r"[\W_]+".join(map(re.escape, title)) + r"(?!\w)[\s.;:)\]]*"
    place = "" if len(title) >= SENTENCE_WORDS[0] else r"^\W*"
    return re.sub(place + repeated, " ", document.body, flags=re.IGNORECASE).strip()


def frequencies_of(texts: Iterable[str]) -> Frequencies:
    """Reads every text once."""
    found: Counter[str] = Counter()
    documents = 0
    for text in texts:
        found.update(set(words(text)))
        documents += 1
    return Frequencies(documents, found)


def sources_of(document: Document, frequencies: Frequencies) -> Sources:
    """What the document can make pseudo-queries of; all are empty where too little of it would be left to find."""
    title = words(document.title)
    found = Sources([], [], [])
    if len(words(text_of(document, ""))) < LEAST_WORDS:
        return found
    if TITLE_WORDS[0] <= len(title) <= TITLE_WORDS[1] and len(words(_without_title(document))) >= LEAST_WORDS:
        found.title.append(document.title)
    for number, sentence in enumerate(sentences(document.body)):
        inside = words(sentence)
        rest = words(text_of(document, f"sentence {number}"))
        if SENTENCE_WORDS[0] <= len(inside) <= SENTENCE_WORDS[1] and len(rest) >= LEAST_WORDS and inside != title:
            found.sentence.append(number)
    terms = _distinctive(words(text_of(document, "")), frequencies)
    found.keywords.extend(terms if len(terms) >= KEYWORDS[0] else [])
    return found


def _distinctive(found: list[str], frequencies: Frequencies) -> list[tuple[float, str]]:
    """The TERMS words with the largest tf-idf; a word of no other document would find nothing but this one."""
    scored = []
    for word, count in Counter(found).items():
        having = frequencies.of[word]
        if having > 1 and len(word) > 2 and not any(letter.isdigit() for letter in word):
            scored.append((count * math.log(frequencies.documents / having), word))
    return sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: (-pair[0], pair[1]))[:TERMS]


def pseudo_query(
    document: Document, sources: Sources, turn: int, weights: Mapping[str, float], keep_sentence: float, seed: int
) -> PseudoQuery | None:
    """The document's pseudo-query of this turn, or None where it can make none of a kind with a weight above 0.

    The kind is drawn by weight among those that the document can make. A sentence stays in the document with
    probability `keep_sentence`. Seed, doc_id and turn alone decide.
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
        without = "" if rng.random() < keep_sentence else f"sentence {number}"
        return PseudoQuery(kind, " ".join(sentences(document.body)[number].split()), document.doc_id, without)
    return PseudoQuery(kind, _keywords(document, sources, rng), document.doc_id, "")


def _keywords(document: Document, sources: Sources, rng: random.Random) -> str:
    """Terms drawn by their tf-idf without repetition, in the order in which the document has them."""
    count = min(rng.randint(*KEYWORDS), len(sources.keywords))
    # Efraimidis and Spirakis 2006: the largest u^(1/w) are a weighted draw without repetition.
    drawn = sorted(sources.keywords, key=lambda pair: rng.random() ** (1 / pair[0]), reverse=True)[:count]
    chosen = {term for _, term in drawn}
    return " ".join(dict.fromkeys(word for word in words(text_of(document, "")) if word in chosen))


def shown(doc_id: str, without: str) -> str:
    """The id of a document shown without a part, under which its text is kept."""
    return f"{doc_id}{WITHOUT}{without}" if without else doc_id


def unshown(variant: str) -> tuple[str, str]:
    """What `shown` was given.

    >>> unshown(shown("d1", "sentence 3"))
    ('d1', 'sentence 3')
    """
    doc_id, _, without = variant.partition(WITHOUT)
    return doc_id, without
