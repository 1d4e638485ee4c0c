"""A server in this process on a free port of 127.0.0.1, and requests to it; every wait has a limit."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from starlette.types import ASGIApp

from rerank import Reranker
from rerank.serving.app import make_app
from rerank.serving.metrics import Metrics
from rerank.serving.requests import Limits
from rerank.serving.server import open_socket, running
from rerank.serving.service import Service
from tests.support.patience import SECONDS

BODIES = {
    "/rerank": {"query": "amber", "texts": ["birch"]},
    "/v1/rerank": {"query": "amber", "documents": ["birch"]},
    "/v2/rerank": {"query": "amber", "documents": ["birch"]},
    "/score": {"text_1": "amber", "text_2": "birch"},
}
"""A request of each API, by its path."""


class Answer(NamedTuple):
    """A response: its status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server(NamedTuple):
    """A running server."""

    service: Service | None
    port: int

    def ask(self, path: str, body: Any = None, method: str = "POST", **headers: str) -> Answer:
        """The answer to a request; `body` is bytes, or what becomes JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask(path, None, "GET", **headers)

    def metric(self, line: str) -> float:
        """The value of the metric whose line begins so."""
        for found in self.get("/metrics").body.decode().splitlines():
            name, _, value = found.rpartition(" ")
            if name == line:
                return float(value)
        return 0.0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)


@contextlib.contextmanager
def serving(app: ASGIApp, service: Service | None = None) -> Iterator[Server]:
    """A server of an application."""
    bound = open_socket("127.0.0.1", 0)
    with running(app, bound):
        yield Server(service, bound.getsockname()[1])


@contextlib.contextmanager
def served(
    reranker: Reranker, limits: Limits | None = None, keys: tuple[str, ...] = (), origins: Sequence[str] = ()
) -> Iterator[Server]:
    """A server of this model, named "the model"."""
    service = Service(reranker, "the model", limits or Limits(), Metrics())
    app = make_app("the model", service.metrics, service, keys=keys, origins=origins)
    with serving(app, service) as server:
        yield server
    service.stop()


class Gate:
    """Holds the model's thread at its next pass until it is opened; counts the documents of each pass."""

    def __init__(self, reranker: Reranker) -> None:
        self.passes: list[int] = []
        self._open, self._score = threading.Event(), reranker.scorer.score_packed

    def score(self, inputs: Any) -> Any:
        self.passes.append(int(inputs.documents[-1]) + 1)
        assert self._open.wait(SECONDS)
        return self._score(inputs)

    def open(self) -> None:
        self._open.set()


@contextlib.contextmanager
def gated(reranker: Reranker) -> Iterator[Gate]:
    """A gate for the block; it is open after it."""
    gate = Gate(reranker)
    reranker.scorer.score_packed = gate.score  # type: ignore[method-assign]
    try:
        yield gate
    finally:
        gate.open()
        del reranker.scorer.score_packed


def in_threads(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """What the functions return, called at once, in their order; an exception is raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [ended.result(SECONDS) for ended in [pool.submit(work) for work in works]]
