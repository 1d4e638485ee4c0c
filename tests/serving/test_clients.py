"""Cohere's client against the running server, without a change but the address; `scripts/clients` has the others."""

import cohere
import pytest

from tests.support.patience import SECONDS
from tests.support.small_world import WORDS

QUERY = "amber fjord"
DOCUMENTS = ["amber birch", "cedar delta ember", " ".join(WORDS * 20), "fjord"]


def test_cohere_of_both_versions(server, reranker):
    best_first = [ranked.index for ranked in reranker.rank(QUERY, DOCUMENTS)]
    settings = {"api_key": "none", "base_url": f"http://127.0.0.1:{server.port}", "timeout": SECONDS}
    asked = {"model": "rerank-v3.5", "query": QUERY, "documents": DOCUMENTS, "top_n": 3}
    with cohere.ClientV2(**settings) as client:
        second = client.rerank(**asked, max_tokens_per_doc=4096)
        with pytest.raises(cohere.BadRequestError) as refused:
            client.rerank(model="rerank-v3.5", query=QUERY, documents=[])
    with cohere.Client(**settings) as client:
        first = client.rerank(**asked)
    for answer in (first, second):
        assert [result.index for result in answer.results] == best_first[:3]
        assert all(0 < result.relevance_score < 1 for result in answer.results)
        assert answer.id
    assert second.meta.api_version.version == "2"
    assert second.meta.tokens.input_tokens > 480
    assert [result.document.text for result in first.results] == [DOCUMENTS[index] for index in best_first[:3]]
    assert "documents: is empty" in str(refused.value.body)
