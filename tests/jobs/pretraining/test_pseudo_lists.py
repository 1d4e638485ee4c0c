"""Lists of pseudo-queries: one source among negatives that do not answer as well, the same for a seed."""

import json
import random

import pytest

from rerank.data.collections import open_collection
from rerank.data.lists import read_training_lists
from rerank.data.types import Document
from rerank.jobs.pretraining.pseudo_lists import (
    PseudoList,
    make_lists,
    near_duplicate,
    select_negatives,
    write_lists,
)
from rerank.jobs.pretraining.pseudo_queries import (
    PseudoQuery,
    pseudo_queries,
    rarities_of,
    text_of,
    usable_documents,
)
from rerank.utils.errors import UserError
from tests.support.small_collection import write_documents

LONG = "one two three four five six seven eight nine ten eleven twelve"
TITLE = PseudoQuery("Wings at speed.", "s", True)
KEYWORDS = PseudoQuery("wings at speed", "s", False)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return open_collection(str(write_documents(tmp_path_factory.mktemp("small") / "docs")))


def usable(documents, wanted=100, seed=0):
    doc_ids, rarities = rarities_of(documents.documents())
    return usable_documents(doc_ids[::-1], documents.get, rarities, wanted, seed)


def test_every_document_is_asked_for_as_often_as_any_other_in_an_order_of_the_seed(documents):
    found, looked_at = usable(documents)
    assert (len(found), looked_at) == (40, 40)
    order = [document.doc_id for document, _ in found]
    assert order == [document.doc_id for document, _ in usable(documents)[0]]
    assert order != [document.doc_id for document, _ in usable(documents, seed=1)[0]]
    queries = pseudo_queries(found, 100, 0)
    asked = [query.doc_id for query in queries.values()]
    assert {asked.count(f"d{i}") for i in range(40)} == {2, 3}
    assert {query.is_title for query in queries.values()} == {True, False}


def test_a_list_has_one_source_among_neighbours_that_are_allowed(documents):
    found, _ = usable(documents)
    queries = pseudo_queries(found, 60, 0)
    run = {query_id: {f"d{i}": 50.0 - i for i in range(30)} for query_id in queries}
    allowed = [f"d{i}" for i in range(5, 40)]
    whole = {document.doc_id: document for document in documents.documents()}
    lists = list(make_lists(queries, run, allowed, documents.get, 3, 1, 0))
    assert [made.query for made in lists] == list(queries.values())
    for query, texts, labels in lists:
        assert sorted(labels) == [0, 0, 0, 0, 1]
        assert len(set(texts)) == 5
        assert texts[labels.index(1)] == text_of(whole[query.doc_id], query.is_title)
        shown = {text_of(whole[doc_id], query.is_title) for doc_id in allowed}
        assert {*texts} - {texts[labels.index(1)]} <= shown
    assert {made.labels.index(1) for made in lists} == {0, 1, 2, 3, 4}
    assert lists == list(make_lists(queries, run, allowed, documents.get, 3, 1, 0))
    assert lists != list(make_lists(queries, run, allowed, documents.get, 3, 1, 1))


def test_lists_are_training_lists(tmp_path):
    lists = [
        PseudoList(PseudoQuery("Größe “x”", "d1", True), ["é", "b"], [1, 0]),
        PseudoList(PseudoQuery("Größe “x”", "d3", False), ["b", "c"], [0, 1]),
    ]
    for once, count in ((True, 1), (False, 2)):
        write_lists(tmp_path / "lists.jsonl", lists, once=once)
        read = read_training_lists(tmp_path / "lists.jsonl", {}, "scores")
        assert [made.labels for made in read.lists] == [(1, 0), (0, 1)][:count]
        assert list(read.texts()) == ["é", "b", "c"][: count + 1]
        assert list(read.queries.values()) == ["Größe “x”"]
    record = json.loads((tmp_path / "lists.jsonl").read_text().splitlines()[0])
    assert record == {"query": "Größe “x”", "documents": ["é", "b"], "labels": [1, 0]}
    with pytest.raises(UserError, match="no pseudo-query has a negative document"):
        write_lists(tmp_path / "none.jsonl", [])


def test_near_duplicates_share_half_of_their_shingles():
    assert near_duplicate(TITLE, LONG, LONG + " thirteen fourteen")
    assert near_duplicate(TITLE, LONG, LONG.upper())
    assert not near_duplicate(TITLE, LONG, " ".join(reversed(LONG.split())))
    assert not near_duplicate(TITLE, LONG, "one two three four " + LONG[::-1])


def test_a_document_with_the_same_title_answers_as_well():
    assert near_duplicate(TITLE, LONG, f"wings - at speed {LONG[::-1]}")
    assert not near_duplicate(TITLE, LONG, f"wings at speeds {LONG[::-1]}")
    assert not near_duplicate(KEYWORDS, LONG, f"wings at speed {LONG[::-1]}")


def negatives(query, neighbours, others, seed=0):
    made = {f"d{i}": Document(f"d{i}", f"Title {i} here", " ".join(f"w{i}x{j}" for j in range(12))) for i in range(8)}
    made["s"] = Document("s", "Wings at speed", LONG)
    made["twin"] = Document("twin", "Another name", f"{LONG} thirteen")
    made["copy"] = made["d0"]._replace(doc_id="copy")
    made["short"] = Document("short", "A title of seven words and more", "and no body")
    found = select_negatives(query, neighbours, others, made, 2, 1, random.Random(seed))
    assert found == {doc_id: text_of(made[doc_id], query is TITLE) for doc_id in found}
    return list(found)


def test_negatives_are_neighbours_and_others_without_the_source_and_its_twin():
    for seed in range(20):
        found = negatives(KEYWORDS, ["s", "twin", "d0", "d1", "d2"], ["s", "twin", "d7"], seed)
        assert len(found) == 3
        assert set(found[:2]) < {"d0", "d1", "d2"}
        assert found[2] == "d7"
    assert set(negatives(TITLE, ["d0", "short", "d1"], ["d2"])) == {"d0", "d1", "d2"}  # "short" has no more words
    assert len({*negatives(KEYWORDS, ["d0", "copy"], ["d3"])} & {"d0", "copy"}) == 1  # of equal texts the first


def test_missing_neighbours_are_replaced_by_others_each_once():
    assert negatives(KEYWORDS, ["d0"], ["d0", "d3", "d4", "d5"]) == ["d0", "d3", "d4"]
    assert negatives(KEYWORDS, [], ["s", "d3"]) == ["d3"]
    assert negatives(KEYWORDS, [], ["s"]) == []
