"""Cohere's client against the running server, without a change but the address; `scripts/clients` has the others."""

import cohere
import pytest

from tests.support.patience import SECONDS
from tests.support.small_world import WORDS

QUERY = "amber fjord"
DOCUMENTS = ["amber birch", "cedar delta ember", " ".join(WORDS * 20), "fjord"]


@pytest.fixture(scope="module")
def best_first(reranker):
    return [ranked.index for ranked in reranker.rank(QUERY, DOCUMENTS)]


def test_cohere_of_version_2(server, best_first):
    with cohere.ClientV2(api_key="none", base_url=f"http://127.0.0.1:{server.port}", timeout=SECONDS) as client:
        answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=3, max_tokens_per_doc=4096)
    assert [result.index for result in answer.results] == best_first[:3]
    assert all(0 < result.relevance_score < 1 for result in answer.results)
    assert answer.id
    assert answer.meta.api_version.version == "2"
    assert answer.meta.tokens.input_tokens > 480


def test_cohere_of_version_1(server, best_first):
    with cohere.Client(api_key="none", base_url=f"http://127.0.0.1:{server.port}", timeout=SECONDS) as client:
        answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=2)
    assert [result.index for result in answer.results] == best_first[:2]
    assert [result.document.text for result in answer.results] == [DOCUMENTS[index] for index in best_first[:2]]


def test_cohere_reads_a_refusal(server):
    address = f"http://127.0.0.1:{server.port}"
    with cohere.ClientV2(api_key="none", base_url=address) as client, pytest.raises(cohere.BadRequestError) as refused:
        client.rerank(model="rerank-v3.5", query=QUERY, documents=[])
    assert "documents: is empty" in str(refused.value.body)
