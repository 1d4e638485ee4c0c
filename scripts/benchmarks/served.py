"""`python -m scripts.benchmarks.served CHECKPOINT all|first`: a server that scores what waits together, or not."""

import sys

from rerank import Reranker
from rerank.cli.main import run_and_exit
from rerank.serving.app import make_app
from rerank.serving.engine import Engine, Job, take_all
from rerank.serving.limits import Limits
from rerank.serving.metrics import Metrics
from rerank.serving.server import address_of, open_socket, serve_until_interrupted
from rerank.serving.service import Service


def take_first(waiting: list[Job]) -> list[Job]:
    """The job that came first: one request at a time."""
    return [waiting.pop(0)] if waiting else []


def main(checkpoint: str, take: str) -> None:
    """Serves a checkpoint on a free port until a signal."""
    reranker, limits, metrics = Reranker.load(checkpoint), Limits(), Metrics()
    engine = Engine(reranker.scorer, limits.max_queue, metrics, {"all": take_all, "first": take_first}[take])
    service = Service(reranker, checkpoint, limits, engine, metrics)
    bound = open_socket("127.0.0.1", 0)
    service.start()
    serve_until_interrupted(make_app(service), bound, f"serving {checkpoint} at {address_of(bound)}")


if __name__ == "__main__":
    run_and_exit(lambda: main(*sys.argv[1:]))
