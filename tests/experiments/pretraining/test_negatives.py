"""Which documents stand against the source: neighbours and random ones, never the source nor what answers as well."""

import random

from rerank.experiments.pretraining.negatives import near_duplicate, select_negatives
from rerank.experiments.pretraining.pseudo_queries import Document, PseudoQuery

LONG = "one two three four five six seven eight nine ten eleven twelve"
TITLE = PseudoQuery("title", "Wings at speed.", "s", "title")


def test_near_duplicates_share_half_of_their_shingles():
    assert near_duplicate(TITLE, LONG, LONG + " thirteen fourteen")
    assert near_duplicate(TITLE, LONG, LONG.upper())
    assert not near_duplicate(TITLE, LONG, " ".join(reversed(LONG.split())))
    assert not near_duplicate(TITLE, LONG, "one two three four " + LONG[::-1])


def test_a_document_with_the_same_title_or_the_quoted_sentence_answers_as_well():
    assert near_duplicate(TITLE, LONG, f"wings - at speed {LONG[::-1]}")
    assert not near_duplicate(TITLE, LONG, f"wings at speeds {LONG[::-1]}")
    quoted = PseudoQuery("sentence", "twelve is the last", "s", "sentence 2")
    assert near_duplicate(quoted, LONG, f"They say: twelve is the last! {LONG[::-1]}")
    keywords = PseudoQuery("keywords", "wings at speed", "s", "")
    assert not near_duplicate(keywords, LONG, f"wings at speed {LONG[::-1]}")


def documents(count=8):
    made = {
        f"d{i}": Document(f"d{i}", f"Title {i} here", " ".join(f"w{i}x{j}" for j in range(12))) for i in range(count)
    }
    made["s"] = Document("s", "Wings at speed", LONG)
    made["twin"] = Document("twin", "Another name", f"{LONG} thirteen")
    made["short"] = Document("short", "A title of seven words and more", "and no body")
    return made


def chosen(query, neighbours, others, count=2, random_count=1, seed=0):
    return select_negatives(query, neighbours, others, documents(), count, random_count, random.Random(seed))


def test_neighbours_and_others_without_the_source_and_its_twin():
    query = PseudoQuery("sentence", "seven eight nine", "s", "sentence 0")
    for seed in range(20):
        found = chosen(query, ["s", "twin", "d0", "d1", "d2"], ["s", "twin", "d7"], seed=seed)
        assert len(found) == 3
        assert set(found[:2]) < {"d0", "d1", "d2"}
        assert found[2] == "d7"


def test_all_documents_of_a_title_are_shown_without_theirs():
    found = chosen(TITLE, ["d0", "short", "d1"], ["d2"])
    assert set(found) == {"d0 without title", "d1 without title", "d2 without title"}  # of "short" nothing is left


def test_neighbours_that_lack_are_made_up_for_by_others_each_once():
    query = PseudoQuery("keywords", "seven nine", "s", "")
    assert chosen(query, ["d0"], ["d0", "d3", "d4", "d5"]) == ["d0", "d3", "d4"]
    assert chosen(query, [], ["s", "d3"]) == ["d3"]
    assert chosen(query, [], ["s"]) == []
