"""`python -m scripts.benchmarks memory`: its collection can be trained on. No memory is asserted."""

import pytest

from rerank.data.collections import open_collection
from scripts.benchmarks.commands import main
from scripts.benchmarks.documents import FEW, JUDGED, QUERIES, write_collection
from tests.support.small_collection import failed


def test_the_collection_is_one_that_we_read(tmp_path):
    write_collection(tmp_path / "c", FEW)
    collection = open_collection(str(tmp_path / "c"))
    texts = {document.doc_id: document.text for document in collection.documents()}
    assert len(texts) == FEW
    assert len(collection.queries) == len(collection.qrels) == QUERIES
    assert sum(map(len, collection.qrels.values())) == JUDGED
    for query_id, judged in collection.qrels.items():
        assert {0, 1} == set(judged.values())
        assert all(collection.queries[query_id] in texts[doc_id] for doc_id in judged)


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--documents", "999"], "--documents: got 999, expected 1000 or more"), (["--out", "."], "--out .: is a folder")],
)
def test_what_cannot_be_measured(capsys, words, expected):
    assert expected in failed(capsys, "memory", *words, main=main)
