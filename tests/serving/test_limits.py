"""Limits on bytes, documents and time; and what all requests together may take."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rerank.serving.requests import Limits
from tests.support.patience import SECONDS, until
from tests.support.servers import BODIES, gated, in_threads, served

LIMITS = Limits(max_body_bytes=4096, max_documents=5, max_queue=6, body_seconds=0.5)
GOOD = {"query": "amber", "texts": ["birch"]}


@pytest.fixture(scope="module")
def server(reranker):
    with served(reranker, LIMITS) as server:
        yield server


def padded(size):
    body = json.dumps(GOOD)
    return (body + " " * (size - len(body))).encode()


def test_a_body_over_the_limit_is_refused(server):
    assert server.ask("/rerank", padded(4096)).status == 200
    for size in (4097, 8000, 16_384):
        refused = server.ask("/rerank", padded(size))
        assert (refused.status, refused.json["error_type"]) == (413, "Validation")
        assert "4096 bytes" in refused.json["error"]
        assert server.ask("/rerank", GOOD).status == 200


@pytest.mark.parametrize(
    ("header", "parts", "status"),
    [
        (b"Content-Length: 99999999999", [], b"413"),  # refused before it is read
        (b"Transfer-Encoding: chunked", [b"400\r\n" + b" " * 1024 + b"\r\n"] * 20, b"413"),
        (b"Content-Length: 100", [b"{"], b"408"),
    ],
    ids=["far over the limit", "without a length", "that does not arrive"],
)
def test_a_body_whose_length_is_wrong_is_given_up(server, header, parts, status):
    with server.connect() as connection:
        connection.sendall(
            b"POST /rerank HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + header + b"\r\n\r\n"
        )
        for part in parts:
            connection.sendall(part)
        assert connection.recv(1000).startswith(b"HTTP/1.1 " + status + b" ")


def test_too_many_documents_are_refused(server):
    assert server.ask("/rerank", {"query": "amber", "texts": ["birch"] * 5}).status == 200
    for path, field in (("/rerank", "texts"), ("/v1/rerank", "documents"), ("/v2/rerank", "documents")):
        refused = server.ask(path, {"query": "amber", field: ["birch"] * 6})
        assert refused.status == 413
        assert b"6 documents" in refused.body
    assert server.ask("/score", {"text_1": "amber", "text_2": ["birch"] * 6}).status == 413


def test_a_full_queue_answers_when_to_come_back(server, reranker):
    with gated(reranker) as gate:

        def ask():
            return server.ask("/rerank", {"query": "amber", "texts": ["birch", "cedar", "delta"]})

        def refused():
            until(lambda: server.service.engine.documents == 6)
            answers = [server.ask(path, body) for path, body in BODIES.items()]
            gate.open()
            return answers

        first, second, answers = in_threads([ask, ask, refused])
    assert (first.status, second.status) == (200, 200)
    for answer in answers:
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
    assert answers[0].json["error_type"] == "Overloaded"
    assert server.ask("/rerank", GOOD).status == 200
    assert server.service.engine.documents == 0


def test_what_waits_for_the_tokenizer_counts(reranker, monkeypatch):
    """Six requests of 10 documents and a queue of 40: two get 429 while the tokenizer has the first."""
    begin, tokenise = threading.Event(), reranker.scorer.tokenise_pairs

    def slow(*arguments):
        assert begin.wait(SECONDS)
        return tokenise(*arguments)

    monkeypatch.setattr(reranker.scorer, "tokenise_pairs", slow)
    asked = {"query": "amber", "texts": [f"birch {number}" for number in range(10)]}
    with served(reranker, Limits(max_documents=10, max_queue=40)) as server, ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(server.ask, "/rerank", asked) for _ in range(6)]
        until(lambda: sum(answer.done() for answer in answers) == 2)
        assert server.metric("rerank_queue_documents") == 40
        begin.set()
        assert sorted(answer.result(SECONDS).status for answer in answers) == [200] * 4 + [429] * 2
        assert server.metric("rerank_queue_documents") == 0
