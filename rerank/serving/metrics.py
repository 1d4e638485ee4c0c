"""The metrics of a server, in Prometheus' text format."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Buckets of the time of a request, in seconds."""

REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Buckets of the requests in a forward pass."""


class Metrics:
    """The metrics of one server; each server of a process has its own registry."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._requests = counter("rerank_requests", "Requests by path and HTTP status.", ["path", "status"])
        text = "Seconds from a request's headers to its answer, of requests that got scores."
        self._seconds = histogram("rerank_request_seconds", text, ["path"], buckets=SECONDS)
        self.clients_gone = counter("rerank_clients_gone", "Requests whose client went away first.")
        self.keys_refused = counter("rerank_keys_refused", "Requests without a key, or with a wrong one.")
        self.documents = counter("rerank_documents", "Documents scored.")
        self.documents_cut = counter("rerank_documents_cut", "Documents longer than the tokens kept of one, cut there.")
        self.queries_cut = counter("rerank_queries_cut", "Queries longer than the tokens kept of one, cut there.")
        self.tokens = counter("rerank_tokens", "Tokens scored, query and special tokens included.")
        text = "Requests whose documents were scored in one pass."
        self.chunk_requests = histogram("rerank_chunk_requests", text, buckets=REQUESTS)
        self.queue_documents = gauge("rerank_queue_documents", "Documents that wait or are being scored.")
        self.queue_requests = gauge("rerank_queue_requests", "Requests that wait or are being scored.")
        ProcessCollector(registry=registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self._requests.labels(path, str(status)).inc()
        if status == 200:
            self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format, version 0.0.4."""
        return generate_latest(self._registry)
