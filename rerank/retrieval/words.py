"""The words of a text as BM25 sees them, and the snippet with the most words of a query, which are marked.

Lucene's analyzer drops stop words and stems the others. Texts repeat their words, so those of a part between two spaces
are kept: Lucene takes 0.7 ms for an abstract.
"""

import bisect
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from rerank.config.languages import ANALYZERS, ENGLISH, check_language
from rerank.data.types import Marked
from rerank.retrieval.java import calling_java, java_class, java_error_in_one_line

SPLIT_BY_CONTEXT = ("ja", "th")
"""Languages in which a part's words depend on what stands before and after it."""
MOST_KEPT = 100_000
ATTRIBUTES = [f"org.apache.lucene.analysis.tokenattributes.{name}Attribute" for name in ("CharTerm", "Offset")]
LENGTH = 240
"""Characters of a snippet, at most, without the dots at its ends."""


class Word(NamedTuple):
    """A word of a text: the term that the index has for it, and where it begins and ends, in characters."""

    term: str
    begin: int
    end: int


_kept: defaultdict[str, dict[str, list[Word]]] = defaultdict(dict)
"""language -> a part of a text without white space that was met -> its words, with places in the part."""


def analyzer_class(language: str) -> str:
    """The full name of Lucene's analyzer of a language that is not English."""
    return f"org.apache.lucene.analysis.{ANALYZERS[language]}Analyzer"


@functools.cache
def open_analyzer(language: str) -> Any:
    """Lucene's analyzer of a language, which finds, drops and stems words.

    Raises UserError for an unknown language, and for one that this Java cannot split into words, as some have no Thai.
    """
    check_language(language)
    if language == ENGLISH:
        with calling_java():
            return java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    with java_error_in_one_line(f"--collection.language {language}: Lucene cannot use it with this Java"):
        analyzer = java_class(analyzer_class(language))()
        java_class("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, "word")  # Thai fails only now
    return analyzer


def find_words(text: str, language: str = ENGLISH) -> list[Word]:
    """The words of a text in their order, without the stop words of the language.

    Words may overlap, as the pairs of characters of Chinese do. Raises UserError for an unknown language.
    """
    if language in SPLIT_BY_CONTEXT:
        return _analysed(text, language)
    kept = _kept[language]
    parts = [(found.start(), found[0]) for found in re.finditer(r"\S+", text)]
    known = {part: words for _, part in parts if (words := kept.get(part)) is not None}
    if missing := list(dict.fromkeys(part for _, part in parts if part not in known)):
        starts = list(itertools.accumulate((len(part) + 1 for part in missing), initial=0))
        new: dict[str, list[Word]] = {part: [] for part in missing}
        for term, begin, end in _analysed(" ".join(missing), language):
            number = bisect.bisect_right(starts, begin) - 1
            new[missing[number]].append(Word(term, begin - starts[number], end - starts[number]))
        if len(kept) > MOST_KEPT:
            kept.clear()
        known |= new
        kept |= new
    return [Word(term, at + begin, at + end) for at, part in parts for term, begin, end in known[part]]


def _analysed(text: str, language: str) -> list[Word]:
    """The words of a text by Lucene, one call after the other."""
    found, analyzer = [], open_analyzer(language)
    from jnius import cast, find_javaclass  # starts Java, which the analyzer has started with its settings

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
    """The character at each place of Java's text, in which one above U+FFFF takes two places; ends with the length."""
    if max(text, default="") <= "\uffff":
        return range(len(text) + 1)
    places = [number for number, character in enumerate(text) for _ in range(1 + (character > "\uffff"))]
    return [*places, len(text)]


def snippet(text: str, terms: Collection[str], language: str = ENGLISH, length: int = LENGTH) -> Marked:
    """The part of at most `length` characters with the most of these terms, in which their words are marked.

    `terms` are those of `find_words`. White space becomes single spaces. Where the text goes on, the part begins and
    ends with a word, and with dots. Raises UserError for an unknown language.
    """
    text = " ".join(text.split())
    words = find_words(text, language)
    begin, end = _place_of_part(text, words, terms, length)
    before, after = "… " if begin else "", " …" if end < len(text) else ""
    marks = list[tuple[int, int]]()
    shift = len(before) - begin
    for word in words:
        if word.term in terms and begin <= word.begin < word.end <= end:
            first, last = word.begin + shift, word.end + shift
            if marks and first < marks[-1][1]:  # words overlap
                marks[-1] = marks[-1][0], max(last, marks[-1][1])
            else:
                marks.append((first, last))
    return Marked(before + text[begin:end] + after, tuple(marks))


def _place_of_part(text: str, words: Sequence[Word], terms: Collection[str], length: int) -> tuple[int, int]:
    """Where the part begins and ends."""
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
    """The first and the last word of the part with the most different terms, and of those with the most words.

    Of several parts it is the first, moved so that the words have as much text before as after. Without any of the
    terms it is the beginning.
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
