"""Malformed requests: each is refused, names what is wrong, and the server goes on."""

import pytest

GOOD = {"query": "amber", "texts": ["birch"]}
NOT_JSON = {
    "nothing": b"",
    "half an object": b'{"query": "amber", "texts": ["birch"',
    "not UTF-8": b'{"query": "\xff\xfe", "texts": ["birch"]}',
    "NaN": b'{"query": "amber", "texts": ["birch"], "top_n": NaN}',
    "100,000 brackets": b"[" * 100_000,
    "half of a surrogate pair": b'{"query": "\\ud83d", "texts": ["\\udc00"]}',
    "a list": b'["amber", "birch"]',
}
"""What is not a JSON object: 400 in every API."""

NOT_TEI = {
    "no fields": {},
    "no texts": {"query": "amber"},
    "a query that is a number": {"query": 1, "texts": ["birch"]},
    "texts that are a text": {"query": "amber", "texts": "birch"},
    "a text that is null": {"query": "amber", "texts": ["birch", None]},
    "a text that is an object": {"query": "amber", "texts": [{"text": "birch"}]},
    "raw_scores that are a text": GOOD | {"raw_scores": "yes"},
    "a query without text": {"query": "", "texts": ["birch"]},
}
NOT_JINA = {
    "no documents": {"query": "amber"},
    "a document without text": {"query": "amber", "documents": [{"image": "birch"}]},
    "a top_n below 0": {"query": "amber", "documents": ["birch"], "top_n": -1},
    "a top_n that is 1.5": {"query": "amber", "documents": ["birch"], "top_n": 1.5},
    "a top_n that is a text": {"query": "amber", "documents": ["birch"], "top_n": "all"},
    "max_tokens_per_doc below 0": {"query": "amber", "documents": ["birch"], "max_tokens_per_doc": -1},
    "a query of white space": {"query": " \n", "documents": ["birch"]},
    "return_documents that is a text": {"query": "amber", "documents": ["birch"], "return_documents": "yes"},
}
NOT_VLLM = {
    "one side alone": {"text_1": "amber"},
    "a query without text": {"text_1": ["amber", ""], "text_2": "birch"},
    "as many queries as no documents": {"queries": ["amber", "fjord"], "documents": ["birch"] * 3},
    "a query that is a number": {"text_1": 1, "text_2": "birch"},
    "an activation that is a text": {"text_1": "amber", "text_2": "birch", "use_activation": "no"},
}
INVALID = {
    "/rerank": NOT_TEI,
    "/v1/rerank": NOT_JINA,
    "/v2/rerank": NOT_JINA,
    "/score": NOT_VLLM,
    "/infinity/rerank": NOT_JINA,
    "/voyage/v1/rerank": NOT_JINA,
}
FIELDS = (
    *("query", "texts", "raw_scores", "return_text", "document", "top_n", "max_tokens", "text_"),
    *("return_documents", "queries", "use_activation"),
)
EMPTY = [
    ("/rerank", {"query": "amber", "texts": []}),
    ("/rerank", {"query": "amber", "documents": []}),
    ("/v1/rerank", {"query": "amber", "documents": []}),
    ("/v2/rerank", {"query": "amber", "documents": []}),
    ("/score", {"text_1": "amber", "text_2": []}),
    ("/score", {"text_1": [], "text_2": []}),
]


@pytest.fixture(autouse=True)
def goes_on(server):
    yield
    assert server.ask("/rerank", GOOD).status == 200


def message(answer):
    assert answer.headers["content-type"] == "application/json"
    line = answer.json["message"]
    assert answer.json.keys() == {"error", "error_type", "detail", "message"}
    error = answer.json["error"]  # an object for the clients of OpenAI
    detail = answer.json["detail"]  # a list for the client of Infinity
    assert line == (detail[0]["msg"] if isinstance(detail, list) else detail)
    assert line == (error["message"] if isinstance(error, dict) else error)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("path", INVALID)
def test_what_is_not_a_json_object_is_refused(server, path):
    for what, body in NOT_JSON.items():
        answer = server.ask(path, body)
        assert answer.status == 400, what
        assert message(answer).startswith("the body is"), what


@pytest.mark.parametrize("path", INVALID)
def test_a_field_that_is_missing_or_wrong_is_named(server, path):
    for what, body in INVALID[path].items():
        answer = server.ask(path, body)
        assert answer.status == 422, what
        found = message(answer)
        assert found.startswith(FIELDS), found
        assert "birch" not in found
        assert "amber" not in found


def test_no_documents_are_refused(server):
    for path, body in EMPTY:
        answer = server.ask(path, body)
        assert answer.status == 400
        if "texts" in body:
            assert answer.json["error_type"] == "Empty"


def test_another_type_of_body_is_refused_and_the_type_may_have_parameters(server):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"):
        assert server.ask("/rerank", GOOD, Content_Type=kind).status == 415
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        assert server.ask("/rerank", GOOD, Content_Type=kind).status == 200


def test_another_path_or_method_is_refused(server):
    for method, path, status in (("GET", "/rerank", 405), ("POST", "/nothing", 404), ("PUT", "/score", 405)):
        answer = server.ask(path, b"{}", method)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
        assert answer.json["detail"].startswith(f"{method} {path}: ")
