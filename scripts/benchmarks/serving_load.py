"""Load on `rerank serve`: every score is compared with `Reranker.score`, and the server's memory is watched."""

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import numpy as np
import torch
from cyclopts import Parameter

from rerank import Reranker
from rerank.utils.errors import UserError
from scripts.benchmarks.report import Count, Out, publish
from scripts.benchmarks.workload import make_queries, make_texts, one_piece_words, open_encoder

LENGTHS = (0, 3, 20, 100, 700, 1500)
"""Words of documents: empty, short, of several passages, and longer than the tokens kept of one."""
SIZES = (1, 2, 5, 20)
"""Documents of a request."""
REQUESTS = 100
TOLERANCE = 1e-5
WAIT = 120
"""Seconds of the longest wait for an answer, and for a server to stop."""
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


class Request(NamedTuple):
    """A request to /score, and the scores that it is to get."""

    body: dict[str, Any]
    scores: np.ndarray


class Answer(NamedTuple):
    """How long an answer took, its status (0: the connection broke), and the largest difference from the scores."""

    seconds: float
    status: int
    difference: float


def serving_load(
    *,
    encoder: Annotated[str, Parameter(help="small, a BERT of two layers; or as elsewhere.")] = "small",
    seconds: float = 60,
    clients: Count = 64,
    out: Out = None,
) -> None:
    """Load on `rerank serve`: each score is compared with Reranker.score, and the server's memory is watched.

    Exit code 2 if an answer is not 200 or a score is wrong.

    Parameters
    ----------
    seconds
        Seconds for which the clients ask.
    clients
        Clients that ask at once, requests of 1 to 20 documents of 0 to 1,500 words.
    """
    with open_encoder(encoder, own_head=True) as folder, server_process(str(folder)) as url:
        requests = mixed_requests(folder)
        answers, resident = _ask_all(url, clients, seconds, requests)
        found = _metrics(url)
    errors = [answer.status for answer in answers if answer.status != 200]
    wrong = [answer for answer in answers if not answer.difference <= TOLERANCE]
    took = [1000 * answer.seconds for answer in answers]
    row = {
        "clients": clients,
        "seconds": seconds,
        "answers": len(answers),
        "not 200": len(errors),
        "wrong scores": len(wrong),
        "largest difference": max(answer.difference for answer in answers),
        "spread": float(np.concatenate([request.scores for request in requests]).std()),
        "p50 (ms)": float(np.percentile(took, 50)),
        "p95 (ms)": float(np.percentile(took, 95)),
        "requests in a pass": found["rerank_chunk_requests_sum"] / found["rerank_chunk_requests_count"],
        "MiB, first quarter": max(resident[: max(1, len(resident) // 4)]) / 2**20,
        "MiB, end": max(resident) / 2**20,
    }
    settings = {"encoder": encoder, "seconds": seconds, "clients": clients}
    publish("Load on rerank serve", [row], COLUMNS, settings, torch.device("cpu"), NOTES, out)
    if errors or wrong:
        raise UserError(f"{len(errors)} answers are errors, {len(wrong)} have wrong scores: see the table")


def mixed_requests(folder: Path, seed: int = 0) -> list[Request]:
    """Requests of documents of all LENGTHS, with the scores that `Reranker.score` gives."""
    reranker = Reranker.load(folder)
    rng, words = np.random.default_rng(seed), one_piece_words(reranker.model.tokenizer)
    requests = []
    for query in make_queries(REQUESTS, words, rng):
        documents = make_texts(rng.choice(LENGTHS, size=rng.choice(SIZES)), words, rng)
        body = {"queries": [query] * len(documents), "documents": documents, "use_activation": False}
        requests.append(Request(body, reranker.score(query, documents)))
    return requests


@contextlib.contextmanager
def server_process(checkpoint: str, *flags: str, port: int = 0) -> Iterator[str]:
    """Runs `rerank serve`, gives its address, and ends it with SIGTERM."""
    words = [sys.executable, "-m", "rerank", "serve", checkpoint, "--port", str(port), *flags]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise UserError(f"{' '.join(words)}: did not start; its error is above")
        yield line.split()[-1]
    finally:
        process.terminate()
        try:
            process.wait(WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ask_all(url: str, clients: int, seconds: float, requests: list[Request]) -> tuple[list[Answer], list[float]]:
    """The answers to clients that ask again and again for so many seconds, each with a connection of its own.

    Also the bytes of the server's memory, every half second.
    """
    answers: list[Answer] = []
    end = time.monotonic() + seconds

    def client(own: int) -> None:
        with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as connection:
            for number in itertools.count(7 * own):  # at least one, however slow the start was
                answers.append(_answer(connection, requests[number % len(requests)]))
                if time.monotonic() >= end:
                    break

    with ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(client, own) for own in range(clients)]
        resident = [_metrics(url)[RESIDENT]]
        while wait(asking, timeout=0.5).not_done:
            resident.append(_metrics(url)[RESIDENT])
    for ended in asking:
        ended.result()
    return answers, resident


def _answer(connection: httpx.Client, request: Request) -> Answer:
    started = time.perf_counter()
    try:
        response = connection.post("/score", json=request.body)
    except httpx.HTTPError:
        return Answer(time.perf_counter() - started, 0, 0.0)
    seconds = time.perf_counter() - started
    if response.status_code != 200:
        return Answer(seconds, response.status_code, 0.0)
    found = np.array([item["score"] for item in response.json()["data"]])
    return Answer(seconds, 200, float(np.abs(found - request.scores).max()))


def _metrics(url: str) -> dict[str, float]:
    """The values of the server's metrics, by their names with labels."""
    lines = httpx.get(f"{url}/metrics", timeout=WAIT, trust_env=False).text.splitlines()
    parts = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in parts}
