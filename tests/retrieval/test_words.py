"""Words as BM25 sees them, with their places."""

import pytest

from rerank.config.languages import ANALYZERS
from rerank.retrieval.java import java_class
from rerank.retrieval.words import find_words, open_analyzer
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
    for unknown in ("DE", "german", "", "de-at"):
        with pytest.raises(UserError, match=r"Lucene has no analyzer of that code; expected one of ar, .*, en, .*, zh"):
            find_words("word", unknown)


def test_anserinis_own_codes_mean_the_same_analyzers():
    for entry in java_class("io.anserini.analysis.AnalyzerMap").analyzerMap.entrySet().toArray():
        assert entry.getValue() == f"org.apache.lucene.analysis.{ANALYZERS[entry.getKey()]}Analyzer"


TEXT = (
    "The l'été  café-bars\u00a0of (d'Artagnan's), 𝒜😀 wings. H-index t-athair e\u0301 東京 都庁 대학교 अनुभव\u2028"
    "Häuser\tإلى x\u200by"
)


@pytest.mark.parametrize("language", sorted(ANALYZERS))
def test_the_words_of_parts_are_those_of_the_whole_text(language):
    try:
        analyzer = open_analyzer(language)
    except UserError as error:
        pytest.skip(str(error))
    expected = list(java_class("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, TEXT))
    for _ in range(2):
        assert [word.term for word in find_words(TEXT, language)] == expected
