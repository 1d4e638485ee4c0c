"""The words of a text as BM25 sees them, with their places: Lucene's analyzer drops stop words and stems the others."""

import functools
from typing import Any, NamedTuple

from rerank.config.languages import ENGLISH
from rerank.retrieval.java import java_class, java_error_in_one_line
from rerank.retrieval.languages import open_analyzer


class Word(NamedTuple):
    """A word of a text: the term that the index has for it, and where it begins and ends, in characters."""

    term: str
    begin: int
    end: int


def find_words(text: str, language: str = ENGLISH) -> list[Word]:
    """The words of a text in their order, without the stop words of the language.

    Words may overlap, as the pairs of characters of Chinese do. Raises UserError for an unknown language.
    """
    found = []
    with java_error_in_one_line("Lucene cannot split the text into words"):
        places = _places(text)
        stream = _analyzer(language).tokenStream("contents", text)
        try:
            term, place = (_attribute(stream, name) for name in ("CharTermAttribute", "OffsetAttribute"))
            stream.reset()
            while stream.incrementToken():
                found.append(Word(term.toString(), places[place.startOffset()], places[place.endOffset()]))
            stream.end()
        finally:
            stream.close()
    return found


@functools.cache
def _analyzer(language: str) -> Any:
    if language == ENGLISH:
        return java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    return open_analyzer(language)


def _attribute(stream: Any, name: str) -> Any:
    from jnius import cast, find_javaclass

    full_name = f"org.apache.lucene.analysis.tokenattributes.{name}"
    return cast(full_name, stream.addAttribute(find_javaclass(full_name)))


def _places(text: str) -> list[int] | range:
    """The character at each place of Java's text, in which one above U+FFFF takes two places; ends with the length."""
    if max(text, default="") <= "\uffff":
        return range(len(text) + 1)
    places = [number for number, character in enumerate(text) for _ in range(1 + (character > "\uffff"))]
    return [*places, len(text)]
