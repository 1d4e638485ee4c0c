"""What a document gives as pseudo-queries, and how it is shown to them."""

import pytest

from rerank.jobs.pretraining.pseudo_queries import (
    Document,
    Sources,
    pseudo_query,
    rarities_of,
    sources_of,
    text_of,
    words,
)

TITLE = "Lift of swept wings at high speed"
BODY = (
    "Lift of swept wings, at high speed. The lift of wings with sweep was measured in a tunnel. Wings of 45 degrees "
    "stalled at U.S. standard speed (or so). Yes. Earlier work on the lift of swept wings at high speed is cited."
)
WINGS = Document("w", TITLE, BODY)
OTHERS = ["wings and lift", "tunnel speed", "lift measured sweep stalled", "degrees of speed", "cited standard work"]
_, RARITIES = rarities_of([WINGS, *(Document(text, "", text) for text in OTHERS)])


def test_a_title_is_removed_wherever_the_body_repeats_it():
    assert sources_of(WINGS, RARITIES).title == TITLE
    rest = text_of(WINGS, True)
    assert "lift of swept wings" not in rest.lower()
    assert rest.startswith("The lift of wings")
    assert "Earlier work on the  is cited." in rest


def test_a_short_title_is_removed_at_the_start_of_the_body_only():
    document = Document("d", "Swept wings", "Swept wings. They say that swept wings stall late and that is all of it.")
    assert text_of(document, True) == "They say that swept wings stall late and that is all of it."
    assert not sources_of(document, RARITIES).title  # two words are a subject, which many documents share
    assert text_of(Document("d", "C++ (1)", "C++ (1): a text"), True) == "a text"
    assert text_of(Document("d", "", " a text "), True) == "a text"


def test_keywords_are_the_words_that_few_others_have_in_the_order_of_the_document():
    counts = {"rare": 2, "scarce": 3, "common": 90, "every": 100, "own": 1, "x9": 2}
    texts = (" ".join(word for word, count in counts.items() if number < count) for number in range(100))
    _, rarities = rarities_of([Document(str(number), "", text) for number, text in enumerate(texts)])
    text = "common rare every common own scarce x9 every common every every every"
    document = Document("d", "", text)
    sources = sources_of(document, rarities)
    assert [term for _, term in sources.keywords] == ["rare", "scarce", "common"]
    assert sources.keywords[0][0] == pytest.approx(3.912, abs=1e-3)  # tf 1 × ln(100 / 2)
    queries = {pseudo_query(document, sources, turn, 0).text for turn in range(50)}
    assert "common rare scarce" in queries
    assert all(words(query) == [word for word in words("common rare scarce") if word in query] for query in queries)
    assert {len(words(query)) for query in queries} == {2, 3}


def test_two_of_three_are_titles_where_a_document_has_one():
    sources = sources_of(WINGS, RARITIES)
    titles = [pseudo_query(WINGS, sources, turn, 0).is_title for turn in range(800)]
    assert 0.61 < sum(titles) / 800 < 0.72
    untitled = WINGS._replace(title="")
    assert not pseudo_query(untitled, sources_of(untitled, RARITIES), 0, 0).is_title


def test_seed_document_and_turn_decide_alone():
    sources = sources_of(WINGS, RARITIES)

    def drawn(seed, doc_id="w"):
        document = WINGS._replace(doc_id=doc_id)
        return [pseudo_query(document, sources, turn, seed).text for turn in range(20)]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)
    assert drawn(0) != drawn(0, "v")


def test_a_short_document_makes_none():
    assert sources_of(Document("d", "A title of its own", "and five words more"), RARITIES) == Sources("", [])
