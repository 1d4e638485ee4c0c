"""The four APIs, field by field, with the scores of the Reranker."""

import math

import pytest

from tests.support.small_world import WORDS

QUERY = "amber fjord"
DOCUMENTS = ["amber birch", "", "cedar delta ember", "amber birch", " ".join(WORDS * 20), "fjord größe 河"]


@pytest.fixture(scope="module")
def raw(reranker):
    return reranker.score(QUERY, DOCUMENTS).tolist()


@pytest.fixture(scope="module")
def relevance(raw):
    return [1 / (1 + math.exp(-score)) for score in raw]


def best_first(scores):
    return sorted(range(len(scores)), key=lambda index: -scores[index])


def test_tei_ranks_texts_by_their_sigmoid_or_raw(server, raw, relevance):
    answer = server.ask("/rerank", {"query": QUERY, "texts": DOCUMENTS})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert [rank["index"] for rank in answer.json] == best_first(relevance)
    assert [rank.keys() for rank in answer.json] == [{"index", "score"}] * len(DOCUMENTS)
    assert {rank["index"]: rank["score"] for rank in answer.json} == pytest.approx(dict(enumerate(relevance)), abs=1e-5)
    asked = {"query": QUERY, "texts": DOCUMENTS, "raw_scores": True, "return_text": True, "future": None}
    answer = server.ask("/rerank", asked).json
    assert {rank["index"]: rank["score"] for rank in answer} == pytest.approx(dict(enumerate(raw)), abs=1e-5)
    assert [rank["text"] for rank in answer] == [DOCUMENTS[rank["index"]] for rank in answer]
    assert max(raw) - min(raw) > 0.1


def test_documents_that_are_cut_are_counted(server):
    asked = {"query": QUERY, "texts": ["amber", " ".join(WORDS * 40)]}
    cut = server.metric("rerank_documents_cut_total")
    assert server.ask("/rerank", asked).status == 200
    assert server.metric("rerank_documents_cut_total") == cut + 1


def test_tei_says_what_is_served(server, reranker):
    assert server.get("/info").json == {
        "model_id": "the model",
        "model_dtype": "float32",
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": 10_000,
        "max_input_length": 800,
        "max_batch_tokens": reranker.scorer.budget.tokens,
        "max_client_batch_size": 1000,
        "max_batch_requests": None,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": server.get("/info").json["version"],
        "sha": None,
        "docker_label": None,
    }
    health = server.get("/health")
    assert (health.status, health.body) == (200, b"")


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
@pytest.mark.parametrize("objects", [True, False])
def test_jina_ranks_documents(server, relevance, path, objects):
    documents = [{"text": document} for document in DOCUMENTS] if objects else DOCUMENTS
    answer = server.ask(path, {"model": "jina-reranker-v2", "query": QUERY, "documents": documents, "top_n": 3}).json
    assert answer.keys() == {"id", "created", "meta", "model", "object", "usage", "results"}
    assert answer["meta"]["tokens"] == {"input_tokens": answer["usage"]["total_tokens"], "output_tokens": 0}
    assert answer["meta"]["billed_units"] == {"search_units": 0}
    assert (answer["model"], answer["object"]) == ("the model", "list")
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] > 480
    assert [result["index"] for result in answer["results"]] == best_first(relevance)[:3]
    for result in answer["results"]:
        assert result.keys() == {"index", "relevance_score", "document"}
        assert result["relevance_score"] == pytest.approx(relevance[result["index"]], abs=1e-5)
        assert result["document"] == {"text": DOCUMENTS[result["index"]]}
    asked = {"query": QUERY, "documents": documents, "return_documents": False, "top_n": 100}
    results = server.ask(path, asked).json["results"]
    assert [result.keys() for result in results] == [{"index", "relevance_score"}] * len(DOCUMENTS)


def test_what_else_clients_of_jina_send(server, reranker, raw):
    asked = {
        "query": QUERY,
        "documents": DOCUMENTS,
        "use_activation": False,
        "return_documents": "false",
        "future": None,
    }
    for more, expected in (
        ({"top_n": "0"}, raw),
        ({"max_doc_length": 2}, reranker.score(QUERY, [" ".join(text.split()[:2]) for text in DOCUMENTS]).tolist()),
    ):
        results = server.ask("/v1/rerank", asked | more).json["results"]
        scores = {result["index"]: result["relevance_score"] for result in results}
        assert scores == pytest.approx(dict(enumerate(expected)), abs=1e-5)
        assert results[0].keys() == {"index", "relevance_score"}


def test_cohere_ranks_documents_and_cuts_them_where_it_is_told(server, relevance, reranker):
    asked = {"model": "rerank-v3.5", "query": QUERY, "documents": DOCUMENTS}
    answer = server.ask("/v2/rerank", asked).json
    assert answer.keys() >= {"id", "results", "meta"}
    assert answer["meta"].keys() == {"api_version", "billed_units", "tokens"}
    assert answer["meta"]["api_version"] == {"version": "2", "is_experimental": False}
    assert answer["meta"]["tokens"]["input_tokens"] > 480
    assert [result["index"] for result in answer["results"]] == best_first(relevance)
    assert [result.keys() for result in answer["results"]] == [{"index", "relevance_score"}] * len(DOCUMENTS)
    for result in answer["results"]:
        assert result["relevance_score"] == pytest.approx(relevance[result["index"]], abs=1e-5)
    best = server.ask("/v2/rerank", asked | {"top_n": 1, "return_documents": True}).json["results"]
    assert [result["document"] for result in best] == [{"text": DOCUMENTS[best_first(relevance)[0]]}]
    asked = {"query": QUERY, "documents": ["amber birch cedar delta"], "max_tokens_per_doc": 2}
    (result,) = server.ask("/v2/rerank", asked).json["results"]
    expected = reranker.score(QUERY, ["amber birch"])[0]
    assert result["relevance_score"] == pytest.approx(1 / (1 + math.exp(-expected)), abs=1e-5)


@pytest.mark.parametrize(
    "first, second",
    [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")],
)
def test_vllm_scores_pairs_in_their_order(server, reranker, relevance, first, second):
    answer = server.ask("/v1/score", {"model": "bge", first: QUERY, second: DOCUMENTS}).json
    assert answer.keys() == {"id", "object", "created", "model", "data", "usage"}
    assert (answer["object"], answer["model"]) == ("list", "the model")
    assert [item["score"] for item in answer["data"]] == pytest.approx(relevance, abs=1e-5)
    assert [(item["index"], item["object"]) for item in answer["data"]] == [(row, "score") for row in range(6)]
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 480

    pairs = [("amber", "birch"), ("fjord", "cedar")]
    asked = {first: [query for query, _ in pairs], second: [text for _, text in pairs], "use_activation": False}
    scores = [item["score"] for item in server.ask("/score", asked).json["data"]]
    assert scores == pytest.approx(reranker.predict(pairs).tolist(), abs=1e-5)
    (alone,) = server.ask("/score", {first: "amber", second: "birch", "use_activation": False}).json["data"]
    assert alone["score"] == pytest.approx(scores[0], abs=1e-5)


def test_what_an_answer_counts_are_the_tokens_that_the_model_read(server, reranker):
    query, documents = "amber", ["birch cedar", "delta"]
    special = 3
    read = sum(1 + len(document.split()) + special for document in documents)
    answer = server.ask("/v1/rerank", {"query": query, "documents": documents}).json
    assert answer["usage"]["total_tokens"] == read
