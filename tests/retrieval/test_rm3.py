"""RM3, against Anserini's on an index with the words of every document."""

import json

import pytest

from rerank.data.types import Document
from rerank.retrieval.bm25 import Searcher
from rerank.retrieval.java import java_class
from rerank.retrieval.lucene_index import SEARCHER, build_index
from rerank.retrieval.rm3 import expanded, search_rm3

TEXTS = {
    "d0": "wing flutter wing speed",
    "d1": "wing wing wing load",
    "d2": "heat flow of a plate",
    "d3": "flutter of a plate",
    "d4": "load load heat",
    "d5": "speed of sound",
    **{f"n{n}": "noise" for n in range(40)},
}
DOCUMENTS = {doc_id: Document(doc_id, "", text) for doc_id, text in TEXTS.items()}


def texts_of(doc_ids):
    return [DOCUMENTS[doc_id] for doc_id in doc_ids]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rm3") / "index"
    build_index(DOCUMENTS.values(), folder)
    return folder


def test_it_gives_the_scores_of_anserini(index, tmp_path):
    place = str(tmp_path / "with-words")
    arguments = ["-collection", "JsonCollection", "-input", "", "-index", place, "-threads", "1", "-storeDocvectors"]
    indexer = java_class("io.anserini.index.SimpleIndexer")(arguments)
    for doc_id, text in TEXTS.items():
        indexer.addRawDocument(json.dumps({"id": doc_id, "contents": text}))
    indexer.close()
    searcher = java_class(SEARCHER)(place)
    searcher.set_bm25(0.9, 0.4)
    searcher.set_rm3(10, 10, 0.5)
    for query in ("flutter", "wing load", "wing flutter wing"):
        expected = {hit.docid: hit.score for hit in searcher.search(query, 50)}
        found = search_rm3(Searcher(index), query, texts_of, 50)
        assert len(expected) > 1
        assert found == pytest.approx(expected, rel=1e-6)
    searcher.close()


def test_a_query_that_finds_nothing_has_no_result(index):
    assert search_rm3(Searcher(index), "unknown", texts_of, 50) == {}


def test_the_words_of_the_query_keep_half_of_the_weight():
    counts = [{"wing": 3, "load": 1, "common": 9, "x": 9, "r2": 1}, {"wing": 1}]
    weights = expanded(["wing", "span"], counts, [2.0, 1.0], lambda term: term == "common")
    model = {"wing": 2 * 3 / 5 + 1, "load": 2 / 5, "r2": 2 / 5}
    expected = {term: weight / sum(model.values()) / 2 for term, weight in model.items()}
    assert weights == pytest.approx({**expected, "wing": expected["wing"] + 0.25, "span": 0.25})
