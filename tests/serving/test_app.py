"""The key, the metrics, the logs, and routes of others."""

import json
import logging
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rerank.serving import server as http
from rerank.serving.access import Access
from rerank.serving.service import Service
from rerank.utils.errors import UserError
from tests.support.paths import ROOT
from tests.support.servers import BODIES, gated, in_threads, served, wait_until


@pytest.fixture(scope="module")
def locked(reranker):
    with served(reranker, access=Access(("secret-key", "another"), ("https://example.org",))) as server:
        yield server


def test_a_key_is_needed_where_there_is_one(locked):
    for path, body in BODIES.items():
        for given in ({}, *({"Authorization": key} for key in ("Bearer wrong", "secret-key", "Basic a"))):
            refused = locked.ask(path, body, **given)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert b"secret-key" not in refused.body
        assert locked.ask(path, body, Authorization="Bearer secret-key").status == 200
        assert locked.ask(path, body, authorization="bearer another").status == 200
        assert locked.ask(path, body, X_API_Key="another").status == 200
        assert locked.ask(path, body, api_key="secret-key").status == 200


def test_health_and_version_need_no_key_and_metrics_if_wished(locked, reranker):
    for path in ("/health", "/health/", "/healthz", "/ready", "/version"):
        assert locked.get(path).status == 200
    for path in ("/info", "/metrics", "/nothing", "/", "/docs", "/v1/models"):
        assert locked.get(path).status == 401
    before = locked.get("/metrics", Authorization="Bearer secret-key").body.decode()
    assert "rerank_keys_refused_total 0.0" not in before
    with served(reranker, access=Access(("secret-key",), open_metrics=True)) as server:
        server.get("/info")
        assert server.metric("rerank_keys_refused_total") == 1


def test_pages_of_allowed_origins_may_ask(locked, reranker):
    asks = {"Origin": "https://example.org", "Access_Control_Request_Method": "POST"}
    preflight = locked.ask("/v1/rerank", None, "OPTIONS", **asks, Access_Control_Request_Headers="authorization")
    assert preflight.status == 200
    assert preflight.headers["access-control-allow-origin"] == "https://example.org"
    refused = locked.ask("/v1/rerank", BODIES["/v1/rerank"], Origin="https://example.org")
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "https://example.org")
    assert "access-control-allow-origin" not in locked.get("/health", Origin="https://example.com").headers
    with served(reranker) as server:
        assert "access-control-allow-origin" not in server.get("/health", Origin="https://example.org").headers


def test_a_file_of_keys_has_one_on_each_line(tmp_path):
    file = tmp_path / "key"
    for text, keys in ((" secret-key\n", ("secret-key",)), ("one\ntwo\n", ("one", "two"))):
        file.write_text(text)
        assert http.read_keys(file) == keys
    for text in ("", "\n", "two words", "one\n\ntwo", "größe"):
        file.write_text(text)
        with pytest.raises(UserError, match="expected a key on each line") as raised:
            http.read_keys(file)
        assert str(file) in str(raised.value)


def test_the_api_describes_itself_without_other_resources(server):
    about = server.get("/openapi.json").json
    assert about["openapi"].startswith("3.")
    assert {"/rerank", "/score", "/models"} <= about["paths"].keys()
    assert "rank_fields" in about["components"]["schemas"]["DocumentsRequest"]["properties"]
    page = server.get("/docs").body.decode()
    assert "truncation_direction" in page
    assert "http" not in page
    assert "<script" not in page
    assert server.get("/version").json.keys() == {"version"}


def test_models_are_listed_as_clients_read_them(server):
    for path in ("/v1/models", "/models", "/v1/models/"):
        listed = server.get(path).json
        assert listed["data"][0]["id"] == listed["models"][0]["name"] == "the model"
        assert listed["data"][0]["capabilities"] == ["rerank"]
    assert server.get("/v1/models/the%20model").json["object"] == "model"


def test_a_path_may_have_a_slash_at_its_end_and_any_version(server):
    expected = {result["index"]: result["score"] for result in server.ask("/rerank", BODIES["/rerank"]).json}
    for path in ("/rerank/", "/v1/rerank", "/v1/v2/rerank", "/tei/rerank"):
        answer = server.ask(path, BODIES["/rerank"])
        assert {result["index"]: result["score"] for result in answer.json} == expected
    for path in ("/v1/rerank/", "/v1/v1/rerank", "/v2/v1/rerank", "/jina/rerank"):
        assert server.ask(path, BODIES["/v1/rerank"]).json["object"] == "list"
    for path in ("/v2/rerank/", "/v1/v2/rerank", "/v2/v2/rerank"):
        assert server.ask(path, BODIES["/v2/rerank"]).json["meta"]["api_version"]["version"] == "2"
    assert server.get("/v1/health/").status == 200


def test_metrics_count_requests_queue_tokens_and_seconds(reranker):
    with served(reranker) as server, gated(reranker) as gate:

        def read():
            queued = "rerank_queue_documents", "rerank_queue_requests"
            wait_until(lambda: [server.metric(name) for name in queued] == [2, 1])
            gate.open()

        answer, _ = in_threads(
            [lambda: server.ask("/v1/rerank", BODIES["/v1/rerank"] | {"documents": ["a", "b"]}), read]
        )
        server.ask("/v2/rerank", {})
        text = server.get("/metrics")
        assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {family.name: family for family in text_string_to_metric_families(text.body.decode())}
        assert server.metric('rerank_requests_total{dialect="jina",status="200"}') == 1
        assert server.metric('rerank_requests_total{dialect="cohere",status="400"}') == 1
        assert server.metric('rerank_request_seconds_count{dialect="jina"}') == 1
        assert server.metric("rerank_documents_total") == 2
        assert server.metric("rerank_tokens_total") == answer.json["usage"]["total_tokens"]
        assert server.metric("rerank_tokens_per_second") > 0
        assert server.metric("rerank_queue_documents") == server.metric("rerank_queue_requests") == 0
        assert families["process_resident_memory_bytes"].samples[0].value > 1e6


def test_nothing_of_a_request_is_logged(reranker, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    with served(reranker) as server:
        for path, body in BODIES.items():
            assert server.ask(f"{path}?q=amber", body).status == 200
            server.ask(path, {"query": "amber", "birch": []})
            server.ask(path, b"birch amber")
        monkeypatch.setattr(Service, "_tokenise", lambda self, question: {}[question.pairs[0]])
        for path, body in BODIES.items():
            broken = server.ask(path, body)
            assert broken.status == 500
            assert b"KeyError" in broken.body
            assert b"birch" not in broken.body
    out, err = capfd.readouterr()
    everything = out + err + caplog.text
    assert "internal error: KeyError" in everything
    assert "amber" not in everything
    assert "birch" not in everything


def test_documents_of_any_length_are_kept_if_asked(reranker, monkeypatch):
    """The model keeps 800 tokens of a document; the last words count where it keeps all."""
    first = " ".join(["birch"] * 900)
    monkeypatch.setattr(reranker.scorer, "max_doc_tokens", 10_000)
    expected = reranker.score("amber", [first + " fjord" * 300, first + " cedar" * 300])
    assert abs(expected[0] - expected[1]) > 1e-3
    with served(reranker) as server:
        body = {"query": "amber", "texts": [first + " fjord" * 300, first + " cedar" * 300], "raw_scores": True}
        scores = {rank["index"]: rank["score"] for rank in server.ask("/rerank", body | {"truncate": False}).json}
    assert [scores[0], scores[1]] == pytest.approx(expected.tolist(), abs=1e-5)


def test_the_curl_lines_of_the_documentation_are_answered(server):
    page = (ROOT / "docs/guides/serving.md").read_text()
    lines = re.findall(r"^curl -s 127\.0\.0\.1:8080(\S+) --json '(.*)'$", page, re.MULTILINE)
    assert [path for path, _ in lines] == list(BODIES)
    for path, body in lines:
        answer = server.ask(path, body.encode())
        assert answer.status == 200
        results = answer.json if path == "/rerank" else answer.json.get("results", answer.json.get("data"))
        assert len(results) == json.loads(body).get("top_n", 2)
