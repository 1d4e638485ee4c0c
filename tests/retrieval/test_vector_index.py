"""The index of vectors: what exact search finds; an interrupt leaves nothing, and a damaged index is refused."""

import numpy as np
import pytest

from rerank.retrieval import vector_index
from rerank.retrieval.exact_search import search_exactly
from rerank.retrieval.vector_index import open_index, search_index
from rerank.utils.errors import UserError
from tests.retrieval.test_exact_search import make_documents

pytest.importorskip("faiss")


@pytest.mark.parametrize("cosine", [True, False])
def test_nearly_all_of_the_best_are_found_with_exact_scores(tmp_path, monkeypatch, cosine):
    _, documents = make_documents(np.random.default_rng(1).integers(1, 4, 900).tolist(), cosine=cosine)
    monkeypatch.setattr(vector_index, "FEWEST_READ", 16)
    index = open_index(tmp_path / "index", documents)
    assert index.nprobe == 16 < index.nlist
    queries = {f"q{number}": vector for number, vector in enumerate(make_documents([1] * 9, 2)[1].vectors)}
    exact = dict(search_exactly(queries, documents, 20))
    found = dict(search_index(queries, documents, 20, index))
    same = [doc_id for query_id, scores in exact.items() for doc_id in scores if doc_id in found[query_id]]
    assert len(same) >= 0.9 * 20 * len(queries)
    for query_id, scores in found.items():
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        for doc_id in scores.keys() & exact[query_id].keys():
            assert scores[doc_id] == pytest.approx(exact[query_id][doc_id], rel=1e-5)


def test_an_interrupted_index_is_built_again_and_a_damaged_one_is_refused(tmp_path, monkeypatch):
    _, documents = make_documents([1] * 500, cosine=True)
    monkeypatch.setattr(vector_index, "VECTORS_AT_ONCE", 100)
    vectors, calls = vector_index._vectors, []

    def interrupt(*arguments):
        calls.append(arguments)
        if len(calls) == 4:  # after the centres and two parts
            raise KeyboardInterrupt
        return vectors(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(vector_index, "_vectors", interrupt)
        with pytest.raises(KeyboardInterrupt):
            open_index(tmp_path / "index", documents)
    assert [path.name for path in tmp_path.iterdir()] in ([], ["vector index.lock"])
    assert open_index(tmp_path / "index", documents).ntotal == 500
    (tmp_path / "index" / vector_index.INDEX).write_bytes(b"{}")
    with pytest.raises(UserError, match=r"index: damaged .*remove the folder"):
        open_index(tmp_path / "index", documents)
