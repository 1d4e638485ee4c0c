"""Load on `rerank serve`: every score is compared with `Reranker.score`, and the server's memory is watched."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from rerank import Reranker
from rerank.utils.errors import UserError
from scripts.benchmarks.http_clients import Asked, asked, metrics, run_clients, server_process
from scripts.benchmarks.lengths import make_queries, make_texts, one_piece_words
from scripts.benchmarks.report import check, publish
from scripts.benchmarks.workload import encoder, make_encoder

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
SPREAD = 0.15
"""The standard deviation of its weights: with BERT's 0.02 all documents would have nearly the same score."""
LENGTHS = (0, 3, 20, 100, 700, 1500)
"""Words of documents: empty, short, of several passages, and longer than the tokens kept of one."""
SIZES = (1, 2, 5, 20)
"""Documents of a request."""
REQUESTS = 100
TOLERANCE = 1e-5
RESIDENT = "process_resident_memory_bytes"
COLUMNS = {
    "clients": "d",
    "seconds": ".0f",
    "answers": ",d",
    "not 200": "d",
    "wrong scores": "d",
    "largest difference": ".1e",
    "spread": ".2f",
    "p50 (ms)": ",.0f",
    "p95 (ms)": ",.0f",
    "requests in a pass": ".1f",
    "MiB, first quarter": ",.0f",
    "MiB, end": ",.0f",
}
NOTES = (
    f"wrong scores: requests with a score further than {TOLERANCE:g} from Reranker.score. spread: the standard "
    "deviation of all scores. requests in a pass: those whose documents the model scored together, a mean. MiB: the "
    "most of the server's memory, in the first quarter and in all.",
)


def serving_load(name: str, seconds: float, clients: int, out: Path | None = None) -> str:
    """Asks a server of the encoder `name` ("" is a small BERT) for `seconds` and returns the table.

    Raises UserError for an encoder that cannot be loaded, for an answer other than 200, and for a wrong score.
    """
    check(1, out)
    with _encoder(name) as folder, server_process("rerank", "serve", str(folder), "--port", "0") as port:
        requests = mixed_requests(folder)
        with _memory(port) as resident:
            answers = run_clients(
                port, clients, seconds, lambda own, number: requests[(7 * own + number) % len(requests)]
            )
        found = metrics(port)
    errors = [answer.status for answer in answers if answer.status != 200]
    wrong = [answer for answer in answers if not answer.difference <= TOLERANCE]
    took = [answer.seconds for answer in answers]
    row = {
        "clients": clients,
        "seconds": seconds,
        "answers": len(answers),
        "not 200": len(errors),
        "wrong scores": len(wrong),
        "largest difference": max(answer.difference for answer in answers),
        "spread": float(np.concatenate([request.scores for request in requests if request.scores is not None]).std()),
        "p50 (ms)": 1000 * float(np.percentile(took, 50)),
        "p95 (ms)": 1000 * float(np.percentile(took, 95)),
        "requests in a pass": found["rerank_chunk_requests_sum"] / found["rerank_chunk_requests_count"],
        "MiB, first quarter": max(resident[: max(1, len(resident) // 4)]) / 2**20,
        "MiB, end": max(resident) / 2**20,
    }
    settings = {"encoder": name or "small", "seconds": seconds, "clients": clients}
    table = publish("Load on rerank serve", [row], COLUMNS, settings, torch.device("cpu"), NOTES, out)
    if errors or wrong:
        raise UserError(f"{len(errors)} answers are errors, {len(wrong)} have wrong scores: {table}")
    return table


def mixed_requests(folder: Path, seed: int = 0) -> list[Asked]:
    """Requests of documents of all LENGTHS, with the scores that `Reranker.score` gives."""
    reranker = Reranker.load(folder)
    rng, words = np.random.default_rng(seed), one_piece_words(reranker.scorer.tokenizer)
    queries = make_queries(REQUESTS, words, rng)
    requests = []
    for query in queries:
        documents = make_texts(rng.choice(LENGTHS, size=rng.choice(SIZES)), words, rng)
        requests.append(asked([(query, document) for document in documents], reranker.score(query, documents)))
    return requests


@contextmanager
def _encoder(name: str) -> Iterator[Path]:
    if name:
        with encoder(name, own_head=True) as folder:
            yield folder
    else:
        with TemporaryDirectory() as temporary:
            yield make_encoder(Path(temporary), own_head=True, **SMALL, initializer_range=SPREAD)


@contextmanager
def _memory(port: int) -> Iterator[list[float]]:
    """The bytes of the server's memory, every half second of the block."""
    resident, over = [metrics(port)[RESIDENT]], threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            resident.append(metrics(port)[RESIDENT])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield resident
    finally:
        over.set()
        thread.join()
