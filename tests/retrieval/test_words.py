"""Words as BM25 sees them, with their places, and the snippet with the most words of a query, which are marked."""

import random

import pytest

from rerank.config.languages import ANALYZERS
from rerank.retrieval.java import java_class
from rerank.retrieval.words import content_words, find_words, open_analyzer, snippet
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


def terms_of(query, language="en"):
    return {word.term for word in find_words(query, language)}


def marked(found):
    return [part for part, is_mark in found.parts() if is_mark]


def test_a_short_text_is_whole_and_its_words_are_marked_by_stem():
    found = snippet("The wings\n  of a <b>City</b>.", terms_of("cities the wing"))
    assert found.text == "The wings of a <b>City</b>."
    assert marked(found) == ["wings", "City"]
    assert "".join(part for part, _ in found.parts()) == found.text
    assert snippet("", terms_of("wing")).parts() == []


def test_the_part_of_a_long_text_has_the_most_words_with_text_on_both_sides():
    text = " ".join(["filler"] * 90 + ["wing", "filler", "wing"] + ["filler"] * 90 + ["wing", "city"] + ["filler"] * 90)
    found = snippet(text, terms_of("wings of cities"), length=100)
    assert marked(found) == ["wing", "city"]  # two different terms before two of one
    assert found.text.startswith("… filler")
    assert found.text.endswith("filler …")
    assert len(found.text) <= 100 + 4
    before, after = found.text.split("wing city")
    assert abs(len(before) - len(after)) < 20


def test_at_an_end_of_the_text_there_are_no_dots():
    text = " ".join(["(The) wing"] + ["filler"] * 90 + ["and the city."])
    assert snippet(text, terms_of("wing"), length=50).text.startswith("(The) wing filler")
    assert snippet(text, terms_of("city"), length=50).text.endswith("filler and the city.")
    assert snippet(text, {"absent"}, length=50).text.startswith("(The) wing filler")
    assert marked(snippet(text, {"absent"}, length=50)) == []


def test_texts_without_spaces_and_without_words_are_cut():
    found = snippet("x" * 1000, terms_of("wing"), length=50)
    assert found.text == "x" * 50 + " …"
    assert snippet("the " * 100, terms_of("wing"), length=50).text.startswith("the the")
    found = snippet("東京都" * 100 + "大阪" + "東京都" * 100, terms_of("大阪", "zh"), "zh", length=50)
    assert marked(found) == ["大阪"]
    assert len(found.text) <= 54


def test_overlapping_words_are_one_mark():
    found = snippet("東京都です", terms_of("東京都", "zh"), "zh")
    assert marked(found) == ["東京都"]


def test_any_text_keeps_its_characters_and_the_most_terms_are_shown():
    rng = random.Random(4)
    terms = terms_of("amber birch")
    for _ in range(60):
        pieces = rng.choices(["amber", "birches,", "x😀", "y-z.", "the", "(cedar)"], [1, 1, 9, 5, 2, 2], k=80)
        text = " ".join(pieces)
        found = snippet(text, terms, length=60)
        body = found.text.removeprefix("… ").removesuffix(" …")
        assert body in text
        assert len(body) <= 60
        assert {word.term for word in find_words(body)} & terms == terms_of(" ".join(marked(found)))
        best = max(
            len({word.term for word in find_words(text[begin : begin + 60])} & terms)
            for begin in [0, *(place + 1 for place, character in enumerate(text) if character == " ")]
            if not text[begin + 60 : begin + 61].strip()
        )
        assert len(terms_of(" ".join(marked(found)))) >= best


def test_function_words_of_a_query_are_no_content():
    asked = "What have we got? The effects of Cicero’s treaty, which weren’t US treaties"
    found = [asked[word.begin : word.end] for word in content_words(asked)]
    assert found == ["got", "effects", "Cicero’s", "treaty", "US", "treaties"]
    assert content_words("what have which") == []
    asked = "Welche Verträge haben wir"
    assert content_words(asked, "de") == find_words(asked, "de")  # the analyzer drops them
    assert [asked[word.begin : word.end] for word in content_words(asked, "de")] == ["Verträge"]
