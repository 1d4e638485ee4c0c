"""Search in two passes finds the documents of exact search, with the same scores, whatever rounding loses."""

from unittest.mock import Mock

import numpy as np
import pytest

from rerank.data.embeddings import EmbeddingStore
from rerank.retrieval.exact_search import search_exactly
from rerank.tasks import rounded_vectors
from rerank.tasks.rounded_vectors import round_vectors, rounded_if_faster
from tests.retrieval.test_exact_search import make_documents


def documents_with(change, cosine=True):
    """Documents of 1 to 4 passages, with vectors that `change` makes of normal numbers."""
    _, documents = make_documents(np.random.default_rng(1).integers(1, 5, 300).tolist())
    return EmbeddingStore(change(documents.vectors).astype(np.float32), documents.offsets, documents.ids, cosine)


CHANGES = {
    "normal": lambda vectors: vectors,
    "near each other": lambda vectors: 1 + 1e-3 * vectors,
    "with zeros": lambda vectors: vectors * (np.arange(len(vectors)) % 3 > 0)[:, None],
    "of any length": lambda vectors: vectors * np.logspace(-6, 6, len(vectors))[:, None],
    "tied": np.sign,
}


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_best_are_those_of_exact_search(change, cosine):
    """Which of two documents with the same score is better may depend on the last bit of a sum."""
    documents = documents_with(change, cosine)
    rounded = round_vectors(documents)
    queries = [*np.random.default_rng(2).normal(size=(4, 8)), np.zeros(8), np.eye(8)[0], *documents.vectors[:2]]
    for query in np.asarray(queries, np.float32):
        about, error = rounded.products(query)
        assert np.abs(about - documents.similarity(query[None], slice(None))[0]).max() <= error
        every = dict(search_exactly({"q": query}, documents, len(documents)))["q"]
        for depth in (1, 5, 299, 300, 1000):
            found = rounded.search(query, depth)
            assert list(found.values()) == pytest.approx(list(every.values())[:depth], rel=1e-5, abs=1e-6)
            assert found == pytest.approx({doc_id: every[doc_id] for doc_id in found}, rel=1e-5, abs=1e-6)


def test_the_faster_way_is_taken_where_vectors_are_many(monkeypatch):
    documents = documents_with(lambda vectors: vectors)
    assert rounded_if_faster(documents) is None
    monkeypatch.setattr(rounded_vectors, "FEWEST", 0)
    for seconds, faster in (([1.0, 3.0], True), ([1.0, 1.5], False)):
        timed = Mock(side_effect=[[value] for value in seconds])
        monkeypatch.setattr(rounded_vectors, "repeat", timed)
        assert (rounded_if_faster(documents) is not None) == faster
