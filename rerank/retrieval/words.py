"""The words of a text as BM25 sees them, those of a query that have content, and the snippet with the most of them.

Lucene's analyzer drops stop words and stems the other words. It takes 0.7 ms for an abstract, so the words of each
token, the text between two spaces, are cached.
"""

import bisect
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from rerank.config.languages import ANALYZERS, ENGLISH, check_language
from rerank.data.types import Marked
from rerank.retrieval.java import JavaObject, calling_java, java_class, java_error_in_one_line

SPLIT_BY_CONTEXT = ("ja", "th")
"""Languages in which the words of a token depend on its context."""
MOST_KEPT = 100_000
"""Largest number of cached tokens of a language."""
ATTRIBUTES = [f"org.apache.lucene.analysis.tokenattributes.{name}Attribute" for name in ("CharTerm", "Offset")]
FUNCTION_WORDS = "org/apache/lucene/analysis/snowball/english_stop.txt"
"""Snowball's English stop words, a file of Lucene: words, and comments after a bar."""
LENGTH = 240
"""Largest number of characters of a snippet, without the dots at its ends."""


class Word(NamedTuple):
    """A word of a text: its term in the index, and its begin and end in characters."""

    term: str
    begin: int
    end: int


_kept: defaultdict[str, dict[str, list[Word]]] = defaultdict(dict)
"""Language -> token without white space -> its words, with places in the token: a cache."""


def analyzer_class(language: str) -> str:
    """The full name of Lucene's analyzer of a language that is not English."""
    return f"org.apache.lucene.analysis.{ANALYZERS[language]}Analyzer"


@functools.cache
def open_analyzer(language: str) -> JavaObject:
    """Lucene's analyzer of a language, which tokenises a text, drops stop words and stems.

    Raises UserError for an unknown language, and for a language that this Java cannot tokenise, for example Thai.
    """
    check_language(language)
    if language == ENGLISH:
        with calling_java():
            return java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    with java_error_in_one_line(f"--collection.language {language}: Lucene cannot use it with this Java"):
        analyzer = java_class(analyzer_class(language))()
        java_class("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, "word")  # Thai fails only on use
    return analyzer


def find_words(text: str, language: str = ENGLISH) -> list[Word]:
    """The words of a text in their order, without the stop words of the language.

    Words may overlap, for example the character bigrams of Chinese. Raises UserError for an unknown language.
    """
    if language in SPLIT_BY_CONTEXT:
        return _analysed(text, language)
    kept = _kept[language]
    tokens = [(found.start(), found[0]) for found in re.finditer(r"\S+", text)]
    known = {token: words for _, token in tokens if (words := kept.get(token)) is not None}
    if missing := list(dict.fromkeys(token for _, token in tokens if token not in known)):
        starts = list(itertools.accumulate((len(token) + 1 for token in missing), initial=0))
        new: dict[str, list[Word]] = {token: [] for token in missing}
        for term, begin, end in _analysed(" ".join(missing), language):
            number = bisect.bisect_right(starts, begin) - 1
            new[missing[number]].append(Word(term, begin - starts[number], end - starts[number]))
        if len(kept) > MOST_KEPT:
            kept.clear()
        known |= new
        kept |= new
    return [Word(term, at + begin, at + end) for at, token in tokens for term, begin, end in known[token]]


def _analysed(text: str, language: str) -> list[Word]:
    """The words of a text by Lucene."""
    found, analyzer = [], open_analyzer(language)
    from jnius import cast, find_javaclass  # after `open_analyzer`: this import would start Java without our options

    with java_error_in_one_line("Lucene cannot split the text into words"):
        places = _places(text)
        stream = analyzer.tokenStream("contents", text)
        try:
            term, place = (cast(name, stream.addAttribute(find_javaclass(name))) for name in ATTRIBUTES)
            stream.reset()
            while stream.incrementToken():
                found.append(Word(term.toString(), places[place.startOffset()], places[place.endOffset()]))
            stream.end()
        finally:
            stream.close()
    return found


def _places(text: str) -> list[int] | range:
    """Place in Java's text -> index of the character; UTF-16 has two places for a character above U+FFFF."""
    if max(text, default="") <= "\uffff":
        return range(len(text) + 1)
    places = [number for number, character in enumerate(text) for _ in range(1 + (character > "\uffff"))]
    return [*places, len(text)]


@functools.cache
def function_words(language: str) -> frozenset[str]:
    """Words such as "what" and "have", in lower case, that a query has but that say nothing of its subject.

    For English it is the list of Snowball, as Lucene's analyzer drops only the 33 most frequent ones. The analyzers of
    other languages drop the words of such lists, so there it is empty.
    """
    if language != ENGLISH:
        return frozenset()
    with java_error_in_one_line("Lucene's stop words cannot be read"):
        stream = java_class("java.lang.ClassLoader").getSystemClassLoader().getResourceAsStream(FUNCTION_WORDS)
        text = java_class("java.util.Scanner")(stream, "UTF-8").useDelimiter("\\A").next()
    return frozenset(word for line in text.splitlines() for word in line.partition("|")[0].split())


def content_words(text: str, language: str = ENGLISH) -> list[Word]:
    """As `find_words`, without function words."""
    known = function_words(language)
    return [word for word in find_words(text, language) if _written(text, word) not in known]


def _written(text: str, word: Word) -> str:
    return text[word.begin : word.end].lower().replace("’", "'")


def mark(text: str, terms: Collection[str], language: str = ENGLISH) -> Marked:
    """The text with the words of these terms marked. Raises UserError for an unknown language."""
    return Marked(text, _marks(find_words(text, language), terms))


def _marks(words: Sequence[Word], terms: Collection[str]) -> tuple[tuple[int, int], ...]:
    marks = list[tuple[int, int]]()
    for word in words:
        if word.term in terms:
            if marks and word.begin < marks[-1][1]:  # words overlap
                marks[-1] = marks[-1][0], max(word.end, marks[-1][1])
            else:
                marks.append((word.begin, word.end))
    return tuple(marks)


def snippet(text: str, terms: Collection[str], language: str = ENGLISH, length: int = LENGTH) -> Marked:
    """The piece of at most `length` characters with the most of these terms, with their words marked.

    `terms` are the terms of `find_words`. White space becomes single spaces. A piece that is cut out of a longer text
    begins and ends at a word, and has dots. Raises UserError for an unknown language.
    """
    text = " ".join(text.split())
    words = find_words(text, language)
    begin, end = _place_of_snippet(text, words, terms, length)
    shown = [word for word in words if begin <= word.begin < word.end <= end]
    before, after = "… " if begin else "", " …" if end < len(text) else ""
    piece = Marked(text, _marks(shown, terms)).cut(begin, end)
    marks = tuple((first + len(before), last + len(before)) for first, last in piece.marks)
    return Marked(before + piece.text + after, marks)


def _place_of_snippet(text: str, words: Sequence[Word], terms: Collection[str], length: int) -> tuple[int, int]:
    """Begin and end of the snippet, in characters."""
    if len(text) <= length:
        return 0, len(text)
    if not words:
        return 0, length
    words = list(words)
    if words[0].end <= length:  # leading and trailing punctuation belongs to the first and last word
        words[0] = words[0]._replace(begin=0)
    if len(text) - words[-1].begin <= length:
        words[-1] = words[-1]._replace(end=len(text))
    first, last = _best_window(words, terms, length)
    return words[first].begin, min(words[last].end, words[first].begin + length)


def _best_window(words: Sequence[Word], terms: Collection[str], length: int) -> tuple[int, int]:
    """The first and last word of the window with the most distinct terms; ties prefer more matching words.

    Of several windows it takes the first, centred on its matching words. Without a match it is the beginning.
    """
    found = [word.term for word in words if word.term in terms]
    before = list(itertools.accumulate((word.term in terms for word in words), initial=0))
    begins = [word.begin for word in words]
    windows = [(min(last, bisect.bisect_left(begins, word.end - length)), last) for last, word in enumerate(words)]
    if not found:
        return [window for window in windows if window[0] == 0][-1]

    @functools.cache
    def value(begin: int, end: int) -> tuple[int, int]:
        return len(set(found[begin:end])), end - begin

    runs = itertools.groupby(windows, key=lambda window: value(before[window[0]], before[window[1] + 1]))
    _, run = max(((key, list(run)) for key, run in runs), key=lambda pair: pair[0])
    return run[len(run) // 2]
