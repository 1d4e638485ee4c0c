"""Exact search: the documents and the scores of a full sort, ties included, in blocks of any size."""

import numpy as np
import pytest

from rerank.data.embeddings import EmbeddingStore
from rerank.data.trec import ranked
from rerank.retrieval.exact_search import search_exactly
from tests.support.id_tables import id_table


def make_documents(passages, seed=0, values=None, cosine=False):
    """A store of documents of these numbers of passages, with ids that are not in the order of the documents."""
    draw = np.random.default_rng(seed)
    ids = [f"d{number:03}" for number in draw.permutation(len(passages))]
    vectors = draw.normal(size=(sum(passages), 8)) if values is None else draw.choice(values, (sum(passages), 8))
    return ids, EmbeddingStore(
        vectors.astype(np.float32),
        np.cumsum([0, *passages]),
        id_table(ids),
        cosine,
    )


@pytest.mark.parametrize("scores_at_once", [4, 12, 28, 4000])
@pytest.mark.parametrize("values", [None, [0, 1]])
@pytest.mark.parametrize("depth", [1, 5, 60, 100])
def test_the_best_are_those_of_a_full_sort(depth, values, scores_at_once, monkeypatch):
    """With vectors of zeros and ones most scores are tied."""
    monkeypatch.setattr("rerank.retrieval.exact_search.SCORES_AT_ONCE", scores_at_once)
    passages = np.random.default_rng(1).integers(1, 5, 60).tolist()
    ids, documents = make_documents(passages, values=values)
    queries = {f"q{number}": row for number, row in enumerate(make_documents([1] * 4, 2, values)[1].vectors)}
    found = dict(search_exactly(queries, documents, depth))
    assert list(found) == list(queries)
    for query_id, query in queries.items():
        best = {
            doc_id: float(max(query @ documents.vectors[row] for row in range(*documents.offsets[place : place + 2])))
            for place, doc_id in enumerate(ids)
        }
        expected = ranked({doc_id: round(score, 4) for doc_id, score in best.items()})[:depth]
        assert list(found[query_id]) == expected
        np.testing.assert_allclose(list(found[query_id].values()), [best[doc_id] for doc_id in expected], atol=1e-5)


def test_more_queries_than_a_block_holds_are_all_answered(monkeypatch):
    monkeypatch.setattr("rerank.retrieval.exact_search.QUERIES_AT_ONCE", 3)
    ids, documents = make_documents([1] * 5, cosine=True)
    queries = {f"q{number}": vector for number, vector in enumerate(np.tile(documents.vectors, (2, 1)))}
    found = dict(search_exactly(queries, documents, 1))
    assert [next(iter(best)) for best in found.values()] == ids * 2
