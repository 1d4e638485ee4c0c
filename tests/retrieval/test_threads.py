"""Searches from several threads: Java is called by one of them at a time, so each finds what one thread alone finds."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from rerank.data.types import Document
from rerank.retrieval.bm25 import Searcher
from rerank.retrieval.lucene_index import IndexedTexts, build_index
from rerank.retrieval.words import find_words, snippet

THREADS = 8
WORDS = [f"{start}{end}" for start in ("ba", "ke", "li", "mo", "nu", "ra") for end in ("", "n", "rt", "st", "ly")]
RANDOM = random.Random(1)
DOCUMENTS = [Document(f"d{n}", "", " ".join(RANDOM.choices(WORDS, k=RANDOM.randint(5, 40)))) for n in range(200)]
QUERIES = [" ".join(RANDOM.choices(WORDS, k=3)) for _ in range(60)]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("threads") / "index"
    build_index(DOCUMENTS, folder)
    return folder


def test_eight_threads_find_what_one_finds(index):
    def answer(query):
        (run,) = Searcher(index).search({"q": query}, 20, threads=1).values()
        one = Searcher(index, k1=1.2, b=0.75).search_one(query, 20)
        terms = {word.term for word in find_words(query)}
        return run, one, snippet(DOCUMENTS[int(next(iter(one))[1:])].text, terms)

    expected = [answer(query) for query in QUERIES]
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(answer, 3 * QUERIES))
    assert found == 3 * expected


def test_threads_may_search_while_others_index_and_while_one_reads_texts(index, tmp_path):
    expected = Searcher(index).search_one(QUERIES[0], 20)
    build_index(DOCUMENTS, tmp_path / "of-one")

    def documents():
        for document in DOCUMENTS:
            with ThreadPoolExecutor(1) as other:  # waits for a lock that is held while documents are made
                assert other.submit(Searcher(index).search_one, QUERIES[0], 20).result() == expected
            yield document

    build_index(documents(), tmp_path / "of-many")
    sizes = [Searcher(tmp_path / name).search_one(QUERIES[1], 500) for name in ("of-one", "of-many")]
    assert sizes[0] == sizes[1]
    with pytest.raises(Exception, match="does not store the text"):
        next(IndexedTexts("towns", index).documents())
