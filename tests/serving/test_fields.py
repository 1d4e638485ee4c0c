"""Every field of every API is honoured, refused, or without effect by definition; none is passed over in silence.

`rerank.serving.dialects.fields.uses` is the table of the fields. Each row is tried over HTTP here.
"""

import pytest

from rerank.serving.dialects import RANKINGS
from rerank.serving.dialects.fields import uses
from tests.support.small_world import WORDS

LONG = " ".join(WORDS * 4)
ROWS = [
    (path, dialect, field) for path, spoken in RANKINGS.items() for dialect in spoken for field in uses(dialect.request)
]
TEXTS = {
    "tei": {"query": "amber", "texts": [LONG, "birch"]},
    "vllm": {"query": "amber", "documents": [LONG, "birch"]},
    "/score": {"text_1": "amber", "text_2": [LONG, "birch"]},
}
OBJECTS = {"query": "amber", "documents": [{"text": LONG, "title": "fjord"}, {"text": "birch", "title": "cedar"}]}
VLLM = {
    "request_id": "mine",
    "use_activation": False,
    "activation": False,
    "softmax": False,
    "max_tokens_per_query": 1,
    "max_tokens_per_doc": 2,
    "truncate_prompt_tokens": 9,
}
"""A value of each field that vLLM's requests share, which changes the answer."""
HONOURED = {
    "query": "amber fjord",
    "texts": [LONG, "cedar"],
    "documents": [LONG, "cedar"],
    "raw_scores": True,
    "return_text": True,
    "top_n": 1,
    "top_k": 1,
    "rank_fields": ["title"],
    "max_chunks_per_doc": 1,
    "overlap_tokens": 3,
    "max_doc_length": 2,
    "max_query_length": 1,
    "max_tokens_per_doc": 2,
    **VLLM,
}
"""A value of each field that is honoured, which changes the answer."""
REFUSES = {"truncate": False, "truncation": False, "truncation_direction": "Left", "truncation_side": "left"}
"""Values of honoured fields that refuse a text which is too long."""
REFUSED = {
    "priority": 1,
    "normalize": False,
    "instruction": "birch",
    "return_embeddings": True,
    "relevant_spans": {"mode": "enabled"},
}
WITHOUT_EFFECT = {
    "model": "another",
    "user": "me",
    "padding": "max_length",
    "mm_processor_kwargs": {"a": 1},
    "cache_salt": "salt",
    "return_len": True,
    "priority": 7,
}
PAIRS = ("queries", "documents", "items", "data_1", "data_2", "text_1", "text_2")


@pytest.fixture(scope="module", autouse=True)
def kept(reranker):
    """Documents of over 30 tokens are cut."""
    before, reranker.scorer.max_doc_tokens = reranker.scorer.max_doc_tokens, 30
    yield
    reranker.scorer.max_doc_tokens = before


def ask(server, path, dialect, **more):
    """The answer to a request of this API, whatever fields tell it, without what differs from one to the next."""
    body = TEXTS.get(path) or TEXTS.get(dialect.name if dialect.name == "tei" else "", TEXTS["vllm"])
    if "rank_fields" in more:
        body = OBJECTS
    address = f"/{dialect.name}/{dialect.version}{path}".replace("//", "/")
    answer = server.ask(address, {**body, **more})
    found = answer.json
    if answer.status == 200 and isinstance(found, dict):
        found = {key: value for key, value in found.items() if key != "created" and (key != "id" or "mine" in value)}
    return answer.status, found


@pytest.mark.parametrize("path, dialect, field", ROWS, ids=lambda value: getattr(value, "name", str(value)))
def test_every_field_is_honoured_refused_or_without_effect(server, path, dialect, field):
    use = uses(dialect.request)[field]["use"]
    if path == "/score" and field in PAIRS:
        return  # by test_the_sides_of_vllm_have_many_names
    status, plain = ask(server, path, dialect)
    assert status == 200
    if use == "refused":
        refused = ask(server, path, dialect, **{field: REFUSED[field]})
        assert refused[0] in (400, 422)
        assert f"{field}: " in str(refused[1])
        assert "birch" not in str(refused[1])
        for accepted in uses(dialect.request)[field]["accepted"][:1]:
            assert ask(server, path, dialect, **{field: accepted}) == (200, plain)
    elif use == "without effect":
        assert ask(server, path, dialect, **{field: WITHOUT_EFFECT[field]}) == (200, plain)
    elif field in REFUSES:
        more = {"truncate_prompt_tokens": 9} if field == "truncation_side" else {}
        refused = ask(server, path, dialect, **{field: REFUSES[field]}, **more)
        assert refused[0] in (400, 413, 422)
        assert field in str(refused[1])
    else:
        shown = "document" in str(plain)
        value = not shown if field == "return_documents" else HONOURED[field]
        more = {"text_1" if path == "/score" else "query": "amber birch cedar"}  # with tokens to cut
        _, plain = ask(server, path, dialect, **more)
        status, changed = ask(server, path, dialect, **(more | {field: value}))
        assert status == 200
        assert changed != plain


@pytest.mark.parametrize("first, second", [("queries", "documents"), ("queries", "items"), ("data_1", "data_2")])
def test_the_sides_of_vllm_have_many_names(server, first, second):
    expected = server.ask("/score", TEXTS["/score"]).json["data"]
    for path in ("/score", "/v1/score", "/v1/score/", "/vllm/v1/score"):
        assert server.ask(path, {first: "amber", second: [LONG, "birch"]}).json["data"] == expected
    refused = server.ask("/score", {first: "amber", second: "birch", "text_1": "amber", "text_2": "birch"})
    assert refused.status == 400


def test_the_values_of_limits_are_those_of_the_texts(server, reranker):
    """What the limits keep is what is scored."""

    def scores(**more):
        body = {"queries": "amber fjord", "documents": [LONG], "use_activation": False, **more}
        return [item["score"] for item in server.ask("/score", body).json["data"]]

    words = LONG.split()

    def expected(query, kept):
        return pytest.approx(reranker.score(query, [" ".join(words[:kept])]).tolist(), abs=1e-5)

    assert scores(max_tokens_per_query=1) == expected("amber", 30)
    assert scores(max_tokens_per_doc=4) == expected("amber fjord", 4)
    assert scores(truncate_prompt_tokens=12) == expected("amber fjord", 12 - 2 - 3)
    assert scores(truncate_prompt_tokens=1) == expected("amber fjord", 0)
    assert scores(truncate_prompt_tokens=-1) == scores() == expected("amber fjord", 30)
    ranked = {"query": "amber fjord", "documents": [LONG], "use_activation": False, "max_chunks_per_doc": 1}
    (result,) = server.ask("/v1/rerank", ranked).json["results"]
    assert [result["relevance_score"]] == expected("amber fjord", 24 - 2 - 3)
    too_much = server.ask("/v1/rerank", {"query": "amber fjord", "documents": [LONG], "overlap_tokens": 25})
    assert (too_much.status, too_much.json["detail"]) == (422, "overlap_tokens: got 25, expected at most 18")


def test_cohere_1_scores_the_rank_fields_of_objects_and_repeats_them(server, reranker):
    documents = [{"title": "amber", "body": "birch", "id": "d1"}, {"body": "fjord cedar"}]
    asked = {"query": "amber", "documents": documents, "rank_fields": ["title", "body"], "return_documents": True}
    results = server.ask("/v1/rerank", asked).json["results"]
    expected = {index: score for index, score, _ in reranker.rank("amber", ["amber birch", "fjord cedar"])}
    assert [result["index"] for result in results] == list(expected)
    assert [result["document"] for result in results] == [documents[index] for index in expected]
    for wrong, place in ({"id": "d2"}, "documents[0]"), ({"title": 3}, "documents[0]: rank_fields[0]"):
        refused = server.ask("/v1/rerank", asked | {"documents": [wrong]})
        assert refused.status == 422
        assert refused.json["message"].startswith(place)


def test_fields_that_an_api_does_not_know_are_passed_over_or_refused_as_it_does(server):
    for path, spoken in RANKINGS.items():
        for dialect in spoken:
            status, answer = ask(server, path, dialect, future=1)
            if dialect.request.__struct_config__.forbid_unknown_fields:
                assert status in (400, 422)
                assert "future: is not a field of this API" in str(answer)
            else:
                assert status == 200
    strict = {
        d.name for spoken in RANKINGS.values() for d in spoken if d.request.__struct_config__.forbid_unknown_fields
    }
    assert strict == {"cohere", "voyage"}


def test_booleans_and_numbers_may_be_texts_where_the_api_takes_them(server):
    asked = {"query": "amber", "documents": ["birch", "cedar"], "return_documents": "false", "top_n": "1"}
    (result,) = server.ask("/v1/rerank", asked | {"return_len": "true"}).json["results"]
    assert result.keys() == {"index", "relevance_score"}
    assert server.ask("/v2/rerank", asked).status == 400
