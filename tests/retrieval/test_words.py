"""Words as BM25 sees them, with their places."""

import pytest

from rerank.retrieval.words import find_words
from rerank.utils.errors import UserError


def shown(text, language="en"):
    return [(word.term, text[word.begin : word.end]) for word in find_words(text, language)]


def test_words_are_stems_with_the_places_of_what_is_written():
    assert shown("The city's wings, and CITIES.") == [("citi", "city's"), ("wing", "wings"), ("citi", "CITIES")]
    assert shown("") == shown("the of ... ") == []


def test_a_character_above_uffff_is_one_place():
    """Java counts two."""
    assert shown("𝒜 😀 wings 😀😀 cities") == [
        (word.term, word.term) if word.term in "𝒜😀" else (word.term, text)
        for word, text in zip(
            find_words("𝒜 😀 wings 😀😀 cities"), ["𝒜", "😀", "wings", "😀", "😀", "cities"], strict=True
        )
    ]


def test_every_language_has_its_own_words():
    assert shown("Die Häuser und Bücher", "de") == [("haus", "Häuser"), ("buch", "Bücher")]
    assert shown("東京都", "zh") == [("東京", "東京"), ("京都", "京都")]
    assert shown("The cities", "standard") == [("the", "The"), ("cities", "cities")]
    with pytest.raises(UserError, match=r"--collection\.language xx: Lucene has no analyzer"):
        find_words("word", "xx")
