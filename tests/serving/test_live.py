"""A model is loaded while connections are accepted, and anew without losing a request."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from rerank.serving.access import Access
from rerank.serving.app import Served, make_app
from rerank.serving.limits import Limits
from rerank.serving.live import Live
from rerank.serving.metrics import Metrics
from rerank.serving.service import Service
from rerank.utils.errors import UserError
from tests.support.servers import BODIES, gated, served, serving, wait_until

KEY = {"Authorization": "Bearer key"}


@pytest.fixture
def opened(reranker):
    """What `Live` opens: the names that are served, one after the other, and those that are closed."""
    names, closed, metrics = ["first"], [], Metrics()

    @contextlib.contextmanager
    def open_app():
        if names[-1] == "broken":
            raise UserError("checkpoint: model.safetensors is damaged")
        service, name = Service(reranker, names[-1], Limits(), metrics), names[-1]
        try:
            yield make_app(Served(name, metrics, service), Access(("key",)), live.reload)
        finally:
            service.stop()
            closed.append(name)

    live = Live(open_app)
    return live, names, closed


def test_requests_before_the_model_is_loaded_are_told_to_come_back(opened):
    live, _, closed = opened
    with serving(live) as server:
        assert server.get("/healthz").status == 200
        for answer in (server.get("/ready"), server.get("/health"), server.ask("/rerank", BODIES["/rerank"], **KEY)):
            assert answer.status == 503
            assert answer.headers["retry-after"] == "5"
            assert "being loaded" in answer.json["error"]
        live.load()
        assert server.get("/ready").status == 200
        assert server.ask("/rerank", BODIES["/rerank"], **KEY).status == 200
    live.close()
    assert closed == ["first"]


def test_a_reload_loses_no_request_and_a_broken_checkpoint_is_not_taken(opened, reranker):
    live, names, closed = opened
    with serving(live) as server:
        live.load()
        with gated(reranker) as gate, ThreadPoolExecutor() as pool:
            asked = pool.submit(server.ask, "/v1/rerank", BODIES["/v1/rerank"], **KEY)
            wait_until(lambda: gate.passes)
            names.append("second")
            assert server.ask("/reload", None).status == 401
            assert server.ask("/reload", None, **KEY).json == {"reloaded": True}
            assert server.get("/info", **KEY).json["model_id"] == "second"
            assert closed == []  # as a request of the first is not answered
            gate.open()
        assert (asked.result().status, asked.result().json["model"]) == (200, "first")
        wait_until(lambda: closed == ["first"])
        names.append("broken")
        refused = server.ask("/reload", None, **KEY)
        assert refused.status == 409
        assert refused.json == {"error": "not reloaded: checkpoint: model.safetensors is damaged"}
        assert server.ask("/v1/rerank", BODIES["/v1/rerank"], **KEY).json["model"] == "second"
        counted = server.get("/metrics", **KEY).body.decode()
        assert 'rerank_requests_total{dialect="jina",status="200"} 2.0' in counted  # of both
    live.close()
    assert closed == ["first", "second"]


def test_a_server_without_a_key_is_not_loaded_anew(reranker):
    with served(reranker) as server:
        refused = server.ask("/reload", None)
        assert (refused.status, "--api-key-file" in refused.json["error"]) == (403, True)
