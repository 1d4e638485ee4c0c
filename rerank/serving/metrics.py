"""The metrics of a server, in Prometheus' text format."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counts of one server; a process may have several, each with a registry of its own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "rerank_requests", "Requests by dialect and HTTP status.", ["dialect", "status"], registry=registry
        )
        self._seconds = Histogram(
            "rerank_request_seconds",
            "Seconds from a request's headers to its answer, of requests that got scores.",
            ["dialect"],
            buckets=SECONDS,
            registry=registry,
        )
        self.clients_gone = Counter("rerank_clients_gone", "Requests whose client went away first.", registry=registry)
        self.keys_refused = Counter(
            "rerank_keys_refused", "Requests without a key, or with a wrong one.", registry=registry
        )
        self._documents = Counter("rerank_documents", "Documents scored.", registry=registry)
        self.documents_cut = Counter(
            "rerank_documents_cut", "Documents longer than the tokens kept of one, cut there.", registry=registry
        )
        self._tokens = Counter("rerank_tokens", "Tokens scored, query and special tokens included.", registry=registry)
        self._chunk_requests = Histogram(
            "rerank_chunk_requests",
            "Requests whose documents were scored in one pass.",
            buckets=REQUESTS,
            registry=registry,
        )
        self._queue = [
            Gauge(name, text, registry=registry)
            for name, text in (
                ("rerank_queue_documents", "Documents that wait or are being scored."),
                ("rerank_queue_requests", "Requests that wait or are being scored."),
                ("rerank_tokens_per_second", "Tokens per second of the last passes of the model."),
            )
        ]
        ProcessCollector(registry=registry)

    def show_queue(self, *values: Callable[[], float]) -> None:
        """Takes the gauges from an engine: documents, requests and tokens per second, asked for when they are read."""
        for gauge, value in zip(self._queue, values, strict=True):
            gauge.set_function(value)

    def request(self, dialect: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(dialect, str(status)).inc()
        if status == 200:
            self._seconds.labels(dialect).observe(seconds)

    def chunk(self, tokens: int, documents: int, requests: int) -> None:
        """The model has scored documents of some requests in one pass."""
        self._tokens.inc(tokens)
        self._documents.inc(documents)
        self._chunk_requests.observe(requests)

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format, version 0.0.4."""
        return generate_latest(self._registry)
