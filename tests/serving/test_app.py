"""The key, the metrics, the logs, and routes."""

import json
import logging
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rerank.serving import server as http
from rerank.utils.errors import UserError
from tests.support.paths import ROOT
from tests.support.patience import until
from tests.support.servers import BODIES, gated, in_threads, served


def test_a_key_is_needed_where_there_is_one(reranker):
    with served(reranker, keys=("secret-key", "another")) as server:
        assert server.get("/health").status == 200
        for path in ("/info", "/metrics", "/nothing", "/", "/v1/models"):
            assert server.get(path).status == 401
        for path, body in BODIES.items():
            for given in ({}, *({"Authorization": key} for key in ("Bearer wrong", "secret-key", "Basic a"))):
                refused = server.ask(path, body, **given)
                assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
                assert isinstance(refused.json["error"], dict if path == "/score" else str)
                assert b"secret-key" not in refused.body
            assert server.ask(path, body, authorization="bearer another").status == 200
            assert server.ask(path, body, X_API_Key="another").status == 200
        metrics = server.get("/metrics", Authorization="Bearer secret-key").body.decode()
        assert f"rerank_keys_refused_total {5 + 4 * len(BODIES)}.0" in metrics


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


def test_metrics_count_requests_queue_tokens_and_seconds(reranker):
    with served(reranker) as server, gated(reranker) as gate:

        def read():
            queued = "rerank_queue_documents", "rerank_queue_requests"
            until(lambda: [server.metric(name) for name in queued] == [2, 1])
            gate.open()

        answer, _ = in_threads(
            [lambda: server.ask("/v1/rerank", BODIES["/v1/rerank"] | {"documents": ["a", "b"]}), read]
        )
        server.ask("/v2/rerank", {})
        text = server.get("/metrics")
        assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {family.name: family for family in text_string_to_metric_families(text.body.decode())}
        assert server.metric('rerank_requests_total{path="/v1/rerank",status="200"}') == 1
        assert server.metric('rerank_requests_total{path="/v2/rerank",status="422"}') == 1
        assert server.metric('rerank_request_seconds_count{path="/v1/rerank"}') == 1
        assert server.metric("rerank_documents_total") == 2
        assert server.metric("rerank_tokens_total") == answer.json["usage"]["total_tokens"]
        assert server.metric("rerank_queue_documents") == server.metric("rerank_queue_requests") == 0
        assert families["process_resident_memory_bytes"].samples[0].value > 1e6


def test_nothing_of_a_request_is_logged(reranker, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    with served(reranker) as server:
        for path, body in BODIES.items():
            assert server.ask(f"{path}?q=amber", body).status == 200
            server.ask(path, {"query": "amber", "birch": []})
            server.ask(path, b"birch amber")
        monkeypatch.setattr(reranker.scorer, "tokenise_pairs", lambda pairs, tokens: {}[pairs[0]])
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
    monkeypatch.setattr(reranker.model, "max_doc_tokens", 10_000)
    expected = reranker.score("amber", [first + " fjord" * 300, first + " cedar" * 300])
    assert abs(expected[0] - expected[1]) > 1e-3
    with served(reranker) as server:
        body = {"query": "amber", "texts": [first + " fjord" * 300, first + " cedar" * 300], "raw_scores": True}
        scores = {rank["index"]: rank["score"] for rank in server.ask("/rerank", body).json}
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
