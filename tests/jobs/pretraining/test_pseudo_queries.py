"""What a document gives as pseudo-queries, and how it is shown to them."""

from collections import Counter

import pytest

from rerank.jobs.pretraining.pseudo_queries import (
    KINDS,
    Document,
    Frequencies,
    Sources,
    frequencies_of,
    pseudo_query,
    sentences,
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
FREQUENCIES = frequencies_of([f"{TITLE} {BODY}", *OTHERS])
ALL = dict.fromkeys(KINDS, 1.0)


def only(kind):
    return dict.fromkeys(KINDS, 0.0) | {kind: 1.0}


def made(kind, turns=60, keep=0.0, document=WINGS):
    sources = sources_of(document, FREQUENCIES)
    return [pseudo_query(document, sources, turn, only(kind), keep, 0) for turn in range(turns)]


def test_a_title_is_removed_wherever_the_body_repeats_it():
    (query,) = set(made("title"))
    assert query == ("title", TITLE, "w", "title")
    rest = text_of(WINGS, query.hidden)
    assert "lift of swept wings" not in rest.lower()
    assert rest.startswith("The lift of wings")
    assert "Earlier work on the  is cited." in rest


def test_a_short_title_is_removed_at_the_start_of_the_body_only():
    document = Document("d", "Swept wings", "Swept wings. They say that swept wings stall late and that is all of it.")
    assert text_of(document, "title") == "They say that swept wings stall late and that is all of it."
    assert not sources_of(document, FREQUENCIES).title  # two words are a subject, which many documents share
    assert text_of(Document("d", "C++ (1)", "C++ (1): a text"), "title") == "a text"
    assert text_of(Document("d", "", " a text "), "title") == "a text"


def test_a_sentence_is_taken_out_of_its_document_or_left():
    found = made("sentence")
    numbers = {query.hidden for query in found}
    assert numbers == {"sentence 1", "sentence 2", "sentence 4"}  # 0 is the title again, 3 is too short
    for query in found:
        assert query.text in BODY
        assert ". ." not in text_of(WINGS, query.hidden)
        assert query.text not in text_of(WINGS, query.hidden)
        assert text_of(WINGS, query.hidden).startswith(TITLE)
    kept = made("sentence", keep=1.0)
    assert {query.hidden for query in kept} == {""}
    assert text_of(WINGS, "") == f"{TITLE} {BODY}"
    share = sum(query.hidden == "" for query in made("sentence", 400, keep=0.25)) / 400
    assert 0.18 < share < 0.32


def test_a_last_sentence_without_a_stop_is_taken_out_too():
    document = Document("d", "", "The first sentence stays here. The last one has no stop")
    assert text_of(document, "sentence 1") == "The first sentence stays here."


def test_full_stops_that_end_no_sentence():
    found = sentences('By J. Doe of the u.s . army. "He left!" Then . the end')
    assert found == ["By J. Doe of the u.s . army", '"He left', "Then", "the end"]
    assert sentences("") == []


def test_keywords_are_the_words_that_few_others_have_in_the_order_of_the_document():
    frequencies = Frequencies(100, Counter({"rare": 2, "scarce": 3, "common": 90, "every": 100, "own": 1, "x9": 2}))
    text = "common rare every common own scarce x9 every common every every every"
    document = Document("d", "", text)
    sources = sources_of(document, frequencies)
    assert [term for _, term in sources.keywords] == ["rare", "scarce", "common"]
    assert sources.keywords[0][0] == pytest.approx(3.912, abs=1e-3)  # tf 1 × ln(100 / 2)
    queries = {pseudo_query(document, sources, turn, only("keywords"), 0.0, 0).text for turn in range(50)}
    assert "common rare scarce" in queries
    assert all(words(query) == [word for word in words("common rare scarce") if word in query] for query in queries)
    assert {len(words(query)) for query in queries} == {2, 3}


def test_the_kinds_are_mixed_by_their_weights_among_those_that_the_document_has():
    sources = sources_of(WINGS, FREQUENCIES)
    weights = {"title": 2.0, "sentence": 1.0, "keywords": 1.0}
    kinds = Counter(pseudo_query(WINGS, sources, turn, weights, 0.1, 0).kind for turn in range(800))
    assert 0.44 < kinds["title"] / 800 < 0.56
    assert 0.2 < kinds["sentence"] / 800 < 0.3
    untitled = WINGS._replace(title="")
    of_untitled = sources_of(untitled, FREQUENCIES)
    assert {pseudo_query(untitled, of_untitled, t, weights, 0.1, 0).kind for t in range(50)} == {"sentence", "keywords"}
    assert pseudo_query(untitled, of_untitled, 0, only("title"), 0.1, 0) is None


def test_seed_document_and_turn_decide_alone():
    sources = sources_of(WINGS, FREQUENCIES)

    def drawn(seed, doc_id="w"):
        document = WINGS._replace(doc_id=doc_id)
        return [pseudo_query(document, sources, turn, ALL, 0.5, seed)[:2] for turn in range(20)]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)
    assert drawn(0) != drawn(0, "v")


def test_a_short_document_makes_none():
    assert sources_of(Document("d", "A title of its own", "and five words more"), FREQUENCIES) == Sources([], [], [])
