"""Snippets: the part with the most words of the query, which are marked."""

import random

from rerank.retrieval.snippets import snippet
from rerank.retrieval.words import find_words


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
