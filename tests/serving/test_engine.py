"""The engine: requests are scored together, with the scores that each has alone; none waits or fails for another."""

import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rerank.serving.engine import Engine, Job
from rerank.serving.metrics import Metrics
from rerank.serving.requests import Limits, RefusalError
from tests.support.patience import until
from tests.support.servers import BODIES, SECONDS, gated, served
from tests.support.small_world import WORDS


@pytest.fixture
def engine(reranker):
    engine = Engine(reranker.scorer, 10_000, Metrics())
    yield engine
    engine.stop()


class Waited:
    """The outcome of a job."""

    def __init__(self, engine, reranker, pairs):
        self.job = Job(reranker.scorer.tokenise_pairs(pairs))
        self.found = engine.submit(self.job)

    def outcome(self):
        return self.found.result(SECONDS).scores


def random_pairs(rng, count):
    return [(rng.choice(WORDS), " ".join(rng.choices(WORDS, k=rng.choice([0, 1, 5, 30, 300])))) for _ in range(count)]


def test_scores_do_not_change_with_company(engine, reranker):
    rng = random.Random(0)
    requests = [random_pairs(rng, rng.choice([1, 2, 20])) for _ in range(30)]
    with gated(reranker) as gate:
        first = Waited(engine, reranker, [("amber", "birch")])
        until(lambda: gate.passes)
        waited = [Waited(engine, reranker, pairs) for pairs in requests]
        gate.open()
        found = [each.outcome() for each in waited]
        first.outcome()
        assert max(gate.passes) > 20  # documents of several requests
    for pairs, scores in zip(requests, found, strict=True):
        np.testing.assert_allclose(scores, reranker.predict(pairs, show=False), atol=1e-5)


def test_what_waits_is_scored_longest_first_within_the_budget(engine, reranker):
    taken = []
    with gated(reranker) as gate:
        score = gate.score

        def recorded(inputs):
            taken.append(inputs.lengths())
            return score(inputs)

        reranker.scorer.score_packed = recorded
        first = Waited(engine, reranker, [("amber", "birch")])
        until(lambda: gate.passes)
        pairs = [("amber", " ".join(WORDS[:words])) for words in (3, 900, 12)] * 8
        others = [Waited(engine, reranker, pairs) for _ in range(8)]
        gate.open()
        for waited in (first, *others):
            waited.outcome()
    tokens = [sum(lengths) for lengths in taken[1:]]
    longest = [max(lengths) for lengths in taken[1:]]
    assert longest == sorted(longest, reverse=True)
    assert max(tokens) <= reranker.scorer.budget.tokens
    assert len(tokens) == 1  # equal pairs of a request are scored once


def test_chunks_keep_to_the_budget(engine, reranker):
    pairs = [("amber", f"{' '.join(WORDS)} {number}") for number in range(400)]
    with gated(reranker) as gate:
        gate.open()
        waited = Waited(engine, reranker, pairs)
        scores = waited.outcome()
        assert len(gate.passes) == -(-waited.job.tokens // reranker.scorer.budget.tokens)
    np.testing.assert_allclose(scores, reranker.predict(pairs, show=False), atol=1e-5)


def test_a_job_that_is_dropped_is_scored_no_further(engine, reranker):
    """Half-way, and while it waits."""
    texts = [f"{' '.join(WORDS)} {number}" for number in range(600)]
    with gated(reranker) as gate:
        dropped = [Waited(engine, reranker, [("amber", text) for text in texts])]
        until(lambda: gate.passes)
        dropped.append(Waited(engine, reranker, [("amber", word) for word in WORDS]))
        for one in dropped:
            one.found.cancel()
        kept = Waited(engine, reranker, [("fjord", "cedar")])
        gate.open()
        kept.outcome()
    assert len(gate.passes) == 2
    assert gate.passes[1] == 1


def test_a_request_that_fails_does_not_fail_the_others(engine, reranker):
    class BrokenError(Exception):
        pass

    with gated(reranker) as gate:
        score = gate.score

        def failing(inputs):
            if (inputs.input_ids == reranker.model.tokenizer.convert_tokens_to_ids("quarry")).any() and gate.passes:
                raise BrokenError("quarry")
            return score(inputs)

        reranker.scorer.score_packed = failing
        first = Waited(engine, reranker, [("amber", "birch")])
        until(lambda: gate.passes)
        good, bad = Waited(engine, reranker, [("amber", "cedar")]), Waited(engine, reranker, [("amber", "quarry")])
        gate.open()
        first.outcome()
        assert good.outcome() == pytest.approx(reranker.score("amber", ["cedar"]), abs=1e-5)
        with pytest.raises(RefusalError, match="BrokenError") as refused:
            bad.outcome()
    assert "quarry" not in str(refused.value)
    assert len(Waited(engine, reranker, [("amber", "birch")]).outcome()) == 1


def test_scores_that_are_not_finite_are_an_error(reranker):
    with served(reranker) as server:
        score = reranker.scorer.score_packed
        broken = np.full(1, np.nan, dtype=np.float32)
        for path, body in BODIES.items():
            try:
                reranker.scorer.score_packed = lambda inputs: score(inputs)._replace(scores=broken)
                answer = server.ask(path, body)
            finally:
                del reranker.scorer.score_packed
            assert answer.status == 500
            assert b"not finite" in answer.body
            assert server.ask(path, body).status == 200


def test_clients_that_are_killed_half_way_are_dropped(reranker):
    body = b'{"query": "amber", "texts": ["birch", "cedar"]}'
    head = b"POST /rerank HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n"
    sent = [b"", b"POST /rer", head, head + body[:20], head + body]
    assert len(body) == 47
    with served(reranker) as server, gated(reranker) as gate, ThreadPoolExecutor() as pool:
        stays = pool.submit(server.ask, "/rerank", {"query": "fjord", "texts": ["delta"]})
        until(lambda: gate.passes)
        for number in range(20):
            connection = server.connect()
            connection.sendall(sent[number % len(sent)])
            if number % 2:  # a reset, and not an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
            until(lambda: server.service.engine.requests == 1)
        until(lambda: server.metric("rerank_clients_gone_total") >= 12)
        gate.open()
        assert stays.result().status == 200
        assert server.ask("/rerank", {"query": "fjord", "texts": ["delta"]}).status == 200
        assert gate.passes == [1, 1]


def test_requests_in_flight_are_answered_when_the_server_stops(reranker):
    with gated(reranker) as gate, ThreadPoolExecutor() as pool:
        with served(reranker) as server:
            asked = pool.submit(server.ask, "/rerank", {"query": "fjord", "texts": ["delta"]})
            until(lambda: gate.passes)
            threading.Timer(0.3, gate.open).start()
        assert asked.result().status == 200


def test_an_engine_whose_thread_has_ended_is_unhealthy(reranker, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    with served(reranker) as server:
        monkeypatch.setattr(Engine, "_chunks", lambda self, jobs: 1 / 0)
        answer = server.ask("/rerank", {"query": "amber", "texts": ["birch"]})
        assert (answer.status, answer.json["error_type"]) == (503, "Unhealthy")
        until(lambda: server.get("/health").status == 503)
        assert server.ask("/v2/rerank", {"query": "amber", "documents": ["birch"]}).status == 503


def test_passages_of_a_search_are_scored_by_the_engine_with_the_requests(reranker, monkeypatch):
    queued, submit = [], Engine.submit

    def submit_and_note(engine, job):
        outcome = submit(engine, job)
        queued.append(job)
        return outcome

    monkeypatch.setattr(Engine, "submit", submit_and_note)
    texts = ["birch", " ".join(WORDS * 40), "", " ".join(WORDS[:5])]
    with served(reranker) as server, gated(reranker) as gate, ThreadPoolExecutor() as pool:
        first = pool.submit(server.ask, "/rerank", {"query": "amber", "texts": ["birch"]})
        until(lambda: gate.passes)
        searched = pool.submit(server.service.rank_passages, "fjord", texts)
        other = pool.submit(server.ask, "/rerank", {"query": "fjord", "texts": ["cedar"]})
        until(lambda: len(queued) == 3)  # a request's documents count as waiting before they are tokenised and queued
        assert server.service.engine.documents == 1 + 4 + 1
        gate.open()
        assert first.result().status == other.result().status == 200
        found = searched.result()
        assert gate.passes == [1, 5]
        passes = [server.metric(f"rerank_chunk_requests_{name}") for name in ("count", "sum")]
        assert passes == [2, 1 + 2]
    expected = reranker.rank_passages("fjord", texts)
    assert [best._replace(score=0) for best in found] == [best._replace(score=0) for best in expected]
    assert [best.score for best in found] == pytest.approx([best.score for best in expected], abs=1e-5)


def test_a_search_that_does_not_fit_into_the_queue_is_refused(reranker):
    with served(reranker, Limits(max_documents=2, max_queue=2)) as server:
        with pytest.raises(RefusalError, match="the queue is full"):
            server.service.rank_passages("fjord", ["amber", "birch", "cedar"])
        assert len(server.service.rank_passages("fjord", ["amber", "birch"])) == 2
