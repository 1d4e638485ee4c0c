"""Training lists from documents: one source each, nothing of what is held out, the same for a seed."""

import pytest

from rerank.data.collections import open_collection
from rerank.data.types import Candidates
from rerank.experiments.pretraining.lists import (
    PseudoLists,
    make_lists,
    pseudo_queries,
    read_lists,
    texts_of,
    usable_documents,
    with_bm25_labels,
    write_lists,
)
from rerank.experiments.pretraining.pseudo_queries import KINDS, frequencies_of, parse_variant_id
from tests.support.small_documents import write_documents

WEIGHTS = dict.fromkeys(KINDS, 1.0)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return open_collection(str(write_documents(tmp_path_factory.mktemp("small") / "docs")))


def usable(documents, wanted=100, seed=0):
    doc_ids, texts = zip(*((document.doc_id, document.text) for document in documents.documents()), strict=True)
    return usable_documents(doc_ids[::-1], documents.get, frequencies_of(texts), WEIGHTS, wanted, seed)


def test_documents_come_in_an_order_of_the_seed(documents):
    found, looked_at = usable(documents)
    assert (len(found), looked_at) == (40, 40)
    order = [document.doc_id for document, _ in found]
    assert order == [document.doc_id for document, _ in usable(documents)[0]]
    assert order != [document.doc_id for document, _ in usable(documents, seed=1)[0]]
    assert set(order) == {f"d{i}" for i in range(40)}


def test_every_document_is_asked_for_as_often_as_any_other(documents):
    found, _ = usable(documents)
    queries = pseudo_queries(found, 100, WEIGHTS, 0.1, 0)
    assert len(queries) == 100
    asked = [query.doc_id for query in queries.values()]
    assert {asked.count(f"d{i}") for i in range(40)} == {2, 3}
    assert {query.kind for query in queries.values()} == set(KINDS)
    assert next(iter(queries)).endswith(f"0 of {asked[0]}")


def test_a_list_has_one_source_among_neighbours_that_are_allowed(documents):
    found, _ = usable(documents)
    queries = pseudo_queries(found, 60, WEIGHTS, 0.1, 0)
    run = {query_id: {f"d{i}": 50.0 - i for i in range(30)} for query_id in queries}
    allowed = [f"d{i}" for i in range(5, 40)]
    lists = make_lists(queries, run, allowed, documents.get, 3, 1, 0)
    assert [candidates.query_id for candidates in lists] == list(queries)
    places = set()
    for candidates in lists:
        query = queries[candidates.query_id]
        place = candidates.labels.index(1)
        places.add(place)
        assert sorted(candidates.labels) == [0, 0, 0, 0, 1]
        assert len(set(candidates.doc_ids)) == 5
        assert parse_variant_id(candidates.doc_ids[place]) == (query.doc_id, query.hidden)
        others = [parse_variant_id(doc_id) for i, doc_id in enumerate(candidates.doc_ids) if i != place]
        assert query.doc_id not in dict(others)
        assert set(dict(others)) <= set(allowed)
        assert {without for _, without in others} == {"title" if query.kind == "title" else ""}
    assert places == {0, 1, 2, 3, 4}
    assert lists == make_lists(queries, run, allowed, documents.get, 3, 1, 0)
    assert lists != make_lists(queries, run, allowed, documents.get, 3, 1, 1)


def test_bm25_s_order_replaces_the_sources_as_labels():
    ranked = {"a": {"d1": 9.0, "d2": 8.0, "d3": 8.0, "d9": 1.0}, "b": {"d1": 2.0}}
    lists = [
        Candidates("a", ("d2", "d4 without title", "d1 without title", "d3", "d5"), (1, 0, 0, 0, 0)),
        Candidates("b", ("d1 without sentence 0", "d2"), (1, 0)),
        Candidates("b", ("d3", "d2"), (1, 0)),  # BM25 found neither
        Candidates("c", ("d3", "d2"), (1, 0)),
    ]
    labelled = with_bm25_labels(lists, ranked)
    assert [candidates.labels for candidates in labelled] == [(2, 0, 4, 2, 0), (1, 0)]
    assert [(c.query_id, c.doc_ids) for c in labelled] == [(c.query_id, c.doc_ids) for c in lists[:2]]


def test_texts_are_those_of_the_documents_without_the_part(documents):
    ((_, title, body),) = documents.get(["d3"])
    first = body.split(".")[0]
    whole, untitled, cut = texts_of(["d3", "d3 without title", "d3 without sentence 0"], documents.get)
    assert whole == f"{title} {body}"
    assert untitled == body
    assert first not in cut
    assert cut == whole.replace(f"{first}. ", "")


def test_lists_are_read_back_as_they_were_written(tmp_path):
    train = [Candidates("title 0 of d1", ("d1 without title", "é without title"), (1, 0))]
    held_out = [Candidates("keywords 0 of d2", ("d3", "d2"), (0, 1))]
    queries = {"title 0 of d1": "Größe “x”", "keywords 0 of d2": "a b"}
    lists = PseudoLists(queries, {"title 0 of d1": "title", "keywords 0 of d2": "keywords"}, train, held_out)
    write_lists(tmp_path / "lists.jsonl", lists)
    assert read_lists(tmp_path / "lists.jsonl") == lists
    assert lists.variants() == ["d1 without title", "d2", "d3", "é without title"]
