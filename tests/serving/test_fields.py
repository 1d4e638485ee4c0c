"""Every field of every API: honoured, refused, or without effect on order, scores and texts; never wrong in silence."""

import pytest

from rerank import Reranker
from tests.support.servers import served
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

QUERY = "amber fjord"
DOCUMENTS = ["amber birch", "cedar delta ember", "fjord amber", "birch"]
LONG = " ".join(WORDS * 300)
TEI, JINA, SCORE = ("/rerank", "texts"), ("/v1/rerank", "documents"), ("/score", "documents")
COHERE, INFINITY, VOYAGE = (
    ("/v2/rerank", "documents"),
    ("/infinity/rerank", "documents"),
    ("/voyage/v1/rerank", "documents"),
)

HONOURED = [
    (TEI, "raw_scores", True),
    (TEI, "return_text", True),
    (TEI, "top_n", 2),  # litellm
    (JINA, "top_n", 2),
    (JINA, "top_k", 2),
    (JINA, "return_documents", False),
    (JINA, "max_doc_length", 1),
    (COHERE, "top_n", 2),
    (COHERE, "max_tokens_per_doc", 1),
    (COHERE, "return_documents", True),
    (JINA, "use_activation", False),
    (JINA, "activation", False),
    (SCORE, "use_activation", False),
    (SCORE, "max_tokens_per_doc", 1),
    (INFINITY, "raw_scores", True),
    (INFINITY, "use_activation", False),
    (VOYAGE, "use_activation", False),
    (INFINITY, "return_documents", True),
    (VOYAGE, "top_k", 2),
    (VOYAGE, "return_documents", True),
]
"""Path, field and a value that changes the answer."""

REFUSED = [
    (JINA, "rank_fields", ["title"]),  # Cohere 1, Together
    (JINA, "max_chunks_per_doc", 1),  # Cohere 1, SiliconFlow, Xinference
    (COHERE, "max_chunks_per_doc", 1),
    (TEI, "truncation_direction", "Left"),
    (TEI, "truncation_direction", "Both"),
    (JINA, "truncate_prompt_tokens", 16),  # vLLM
    (JINA, "truncation_side", "left"),
    (JINA, "max_tokens_per_query", 4),
    (JINA, "instruction", "find opposites"),
    (JINA, "chat_template_kwargs", {"instruction": "find opposites"}),
    (JINA, "normalize", True),
    (JINA, "softmax", False),
    (SCORE, "truncate_prompt_tokens", 16),
    (SCORE, "instruction", "find opposites"),
    (JINA, "max_query_length", 2),  # Jina
    (JINA, "return_embeddings", True),
    (JINA, "overlap_tokens", 8),  # SiliconFlow, Xinference
    (JINA, "kwargs", '{"normalize": false}'),
    (TEI, "raw_score", True),  # misspelt
    (JINA, "top", 2),
    (VOYAGE, "top_n_results", 2),
]
"""Path, field and a value that would change the answer of the API's own server, or that no server has."""

WITHOUT_EFFECT = [
    (TEI, "model", "any"),
    (TEI, "truncate", True),
    (TEI, "truncation_direction", "Right"),
    (JINA, "model", "any"),
    (JINA, "user", "someone"),
    (JINA, "priority", 3),
    (JINA, "rank_fields", ["text"]),
    (JINA, "max_tokens_per_doc", 0),
    (JINA, "truncate_prompt_tokens", -1),
    (JINA, "max_tokens_per_query", 0),
    (JINA, "truncation", False),  # none of these texts is cut
    (JINA, "instruction", ""),
    (JINA, "future", None),
    (JINA, "kwargs", "{}"),  # Xinference's client
    (COHERE, "priority", 1),
    (SCORE, "model", "any"),
    (VOYAGE, "truncation", True),
]
"""Path, field and a value with which the answer is that of a request without the field."""


def ask(server, api, **more):
    path, documents = api
    query = "queries" if path == "/score" else "query"
    answer = server.ask(path, {query: QUERY, documents: DOCUMENTS} | more)
    content = answer.json
    if isinstance(content, dict):
        for changing in ("id", "created"):
            content.pop(changing, None)
    return answer.status, content


@pytest.mark.parametrize("api, field, value", HONOURED)
def test_fields_that_are_honoured_change_the_answer(server, api, field, value):
    status, content = ask(server, api, **{field: value})
    assert status == 200
    assert content != ask(server, api)[1]


@pytest.mark.parametrize("api, field, value", REFUSED)
def test_fields_that_would_change_the_answer_are_refused_by_name(server, api, field, value):
    status, content = ask(server, api, **{field: value})
    assert status == 422
    assert content["message"].startswith(f"{field}: ")


@pytest.mark.parametrize("api, field, value", WITHOUT_EFFECT)
def test_other_fields_change_nothing(server, api, field, value):
    assert ask(server, api, **{field: value}) == ask(server, api)


def test_a_misspelt_field_is_told_its_name(server):
    assert "did you mean raw_scores?" in ask(server, TEI, raw_score=True)[1]["message"]


@pytest.mark.parametrize(
    "api, field, value", [(TEI, "truncate", False), (JINA, "truncation", False), (VOYAGE, "truncation", False)]
)
def test_a_request_that_allows_no_cut_is_refused_for_a_long_text(server, api, field, value):
    documents = {api[1]: [*DOCUMENTS, LONG]}
    assert ask(server, api, **documents)[0] == 200
    status, content = ask(server, api, **documents, **{field: value})
    assert status == 413
    assert content["message"] == "1 documents are cut at 800 tokens: the request allows no truncation"
    more = {"max_tokens_per_doc": 4096} if api != TEI else {}  # more than the model reads, and no text is cut
    assert ask(server, api, **more, **{field: value})[0] == 200


def test_what_is_cut_or_capped_is_said(server):
    status, content = ask(server, COHERE, documents=[LONG, "birch"], max_tokens_per_doc=4096)
    assert status == 200
    assert content["meta"]["warnings"] == [
        "max_tokens_per_doc is 4096, the model reads 800",
        "1 documents are cut at 800 tokens",
    ]
    cut = server.metric("rerank_queries_cut_total")
    content = server.ask("/v2/rerank", {"query": LONG, "documents": ["birch"]}).json
    assert content["meta"]["warnings"] == ["1 queries are cut at 10 tokens"]
    assert server.metric("rerank_queries_cut_total") == cut + 1
    assert "warnings" not in ask(server, COHERE)[1]["meta"]


def test_two_names_of_a_field_are_refused(server):
    for path, body, names in (
        ("/score", {"text_1": "amber", "queries": ["birch"], "text_2": "cedar"}, "text_1, queries"),
        ("/rerank", {"query": "amber", "texts": ["birch"], "documents": ["cedar"]}, "texts, documents"),
        ("/v1/rerank", {"query": "amber", "documents": ["birch"], "top_n": 1, "top_k": 2}, "top_n, top_k"),
    ):
        answer = server.ask(path, body)
        assert answer.status == 422
        assert answer.json["message"] == f"{names}: two names of the same field; expected one of them"


@pytest.mark.parametrize("names", [("top_n", "top_k"), ("top_k", "top_n")])
def test_another_name_of_a_field_may_be_null(server, names):
    given = dict(zip(names, (1, None), strict=True))
    assert len(ask(server, JINA, **given)[1]["results"]) == 1
    assert len(ask(server, JINA, **dict(reversed(given.items())))[1]["results"]) == 1


def test_documents_are_repeated_with_all_of_their_keys(server):
    documents = [{"text": "amber", "title": "A", "id": 7}, "birch"]
    results = ask(server, JINA, documents=documents)[1]["results"]
    assert {result["index"]: result["document"] for result in results} == {0: documents[0], 1: {"text": "birch"}}
    results = ask(server, INFINITY, documents=documents, return_documents=True)[1]["results"]
    assert {result["index"]: result["document"] for result in results} == {0: "amber", 1: "birch"}


def test_infinity_and_voyage_answer_in_their_own_form(server, reranker):
    best = int(reranker.score(QUERY, DOCUMENTS).argmax())
    infinity = ask(server, INFINITY)[1]
    assert infinity["results"][0].keys() == {"index", "relevance_score"}
    voyage = ask(server, VOYAGE, top_k=1)[1]
    assert voyage.keys() == {"object", "data", "model", "usage"}
    assert [found["index"] for found in voyage["data"]] == [best] == [infinity["results"][0]["index"]]
    assert voyage["usage"].keys() == {"total_tokens"}


def test_one_document_is_paired_with_several_queries(server, reranker):
    data = server.ask("/score", {"queries": ["amber", "birch"], "items": "amber cedar", "use_activation": False}).json
    expected = reranker.predict([("amber", "amber cedar"), ("birch", "amber cedar")]).tolist()
    assert [pair["score"] for pair in data["data"]] == pytest.approx(expected, abs=1e-5)


def test_a_query_is_cut_to_what_passages_of_fixed_length_leave(tmp_path):
    encoder = make_cross_encoder("bert", tmp_path / "bert", WORDS, max_positions=24)  # 21 tokens and 3 special ones
    with served(Reranker.load(encoder, device="cpu", passage_tokens=15)) as server:
        content = server.ask("/v2/rerank", {"query": LONG, "documents": ["birch"]}).json
    assert content["meta"]["warnings"] == ["1 queries are cut at 6 tokens"]
