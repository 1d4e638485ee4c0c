"""RM3 by Pyserini: on an index with the words of every document, by the scores of Anserini's own searcher."""

import pytest

from rerank.data.types import Document
from rerank.retrieval.bm25 import Searcher
from rerank.retrieval.java import java_class
from rerank.retrieval.lucene_index import SEARCHER, build_index
from rerank.utils.errors import UserError

TEXTS = {
    "d0": "wing flutter wing speed",
    "d1": "wing wing wing load",
    "d2": "heat flow of a plate",
    "d3": "flutter of a plate",
    "d4": "load load heat",
    "d5": "speed of sound",
    **{f"n{n}": "noise" for n in range(40)},
}
DOCUMENTS = [Document(doc_id, "", text) for doc_id, text in TEXTS.items()]
QUERIES = {"a": "flutter", "b": "wing load", "c": "wing flutter wing"}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rm3") / "index"
    build_index(DOCUMENTS, folder, with_words=True)
    return folder


def test_it_gives_the_scores_of_anserini(index):
    anserini = java_class(SEARCHER)(str(index))
    anserini.set_bm25(0.9, 0.4)
    anserini.set_rm3(10, 10, 0.5)
    searcher = Searcher(index, rm3=True)
    found = searcher.search(QUERIES, 50)
    for query_id, query in QUERIES.items():
        expected = {hit.docid: hit.score for hit in anserini.search(query, 50)}
        assert found[query_id] == searcher.search_one(query, 50) == expected
        assert len(expected) >= len(Searcher(index).search_one(query, 50))
    assert len(found["a"]) > 2  # two documents have the word
    anserini.close()


def test_a_query_that_finds_nothing_has_no_result(index):
    assert Searcher(index, rm3=True).search_one("unknown", 50) == {}


def test_words_of_another_script_are_added_too(tmp_path):
    texts = ["река вода", "вода лодка", *["гора"] * 30]
    build_index([Document(f"d{n}", "", text) for n, text in enumerate(texts)], tmp_path / "index", language="ru",
                with_words=True)  # fmt: skip
    assert set(Searcher(tmp_path / "index", language="ru", rm3=True).search_one("река", 9)) == {"d0", "d1"}


def test_an_index_without_the_words_is_one_line(tmp_path):
    build_index(DOCUMENTS, tmp_path / "index")
    with pytest.raises(UserError, match=r"does not store the words of its documents, which rm3 needs; expected an"):
        Searcher(tmp_path / "index", rm3=True).search(QUERIES, 5)
