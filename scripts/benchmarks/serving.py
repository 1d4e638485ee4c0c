"""Benchmark: `rerank serve` under load, requests packed together against one request at a time."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from rerank.data.tokens import make_store
from rerank.models.encoder import load_encoder
from rerank.utils.errors import UserError
from rerank.utils.progress import log
from scripts.benchmarks.http_clients import Asked, asked, metrics, run_clients, server_process
from scripts.benchmarks.lengths import make_queries, make_texts, one_piece_words
from scripts.benchmarks.report import check, publish
from scripts.benchmarks.timing import ratio
from scripts.benchmarks.workload import encoder

CLIENTS = (1, 8, 64)
PACKED, ALONE = "packed", "one at a time"
CPU = "process_cpu_seconds_total"
REQUESTS = 64
"""Distinct requests, which the clients take in turns."""
WORDS = (4, 24)
"""The words of a short document."""
COLUMNS = {
    "clients": "d",
    "requests": "",
    "requests/s": ",.1f",
    "documents/s": ",.1f",
    "p50 (ms)": ",.0f",
    "p95 (ms)": ",.0f",
    "CPU ms/request": ",.1f",
    "packed is × faster": ".2f",
    "CPU ×": ".2f",
}
NOTES = (
    "Clients on the same machine ask again as soon as they have an answer. packed: what waits is scored together; one "
    "at a time: the same server scores each request by itself, in the order of arrival. requests/s is the number of "
    "clients divided by the mean latency (Little's law), × faster its ratio within a round; both are medians over "
    "rounds. CPU: seconds of the server's process for all requests, which other jobs of the machine change less.",
)


def bench_serving(
    name: str, rounds: int, seconds: float, documents: int, clients: Sequence[int] = CLIENTS, out: Path | None = None
) -> str:
    """Measures servers of the encoder `name` ("" is minilm) and returns the table.

    A request has `documents` short documents. Each number of clients asks both servers in turns, for `seconds` in a
    round. Raises UserError for an encoder that cannot be loaded or a number that is too small.
    """
    check(rounds, out)
    if documents < 1 or seconds <= 0:
        raise UserError(f"--documents {documents} --seconds {seconds:g}: expected 1 or more, and more than 0")
    name = name or "minilm"
    answers: dict[tuple[int, str], list[list[float]]] = {}
    cpu: dict[tuple[int, str], float] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(encoder(name, own_head=True))
        requests, tokens = short_requests(folder, documents)
        module = "scripts.benchmarks.served"
        ports = {
            PACKED: stack.enter_context(server_process(module, str(folder), "all")),
            ALONE: stack.enter_context(server_process(module, str(folder), "first")),
        }
        for number in range(rounds + 1):  # the first warms up
            for count in clients:
                for what, port in ports.items():
                    before = metrics(port)[CPU]
                    took = _seconds(port, count, seconds if number else min(seconds, 2.0), requests)
                    if number:
                        answers.setdefault((count, what), []).append(took)
                        cpu[count, what] = cpu.get((count, what), 0.0) + metrics(port)[CPU] - before
            log.info(f"round {number}/{rounds}")
    rows = [_row(count, what, answers, cpu, documents) for count in clients for what in ports]
    settings = {"encoder": name, "rounds": rounds, "seconds": seconds, "documents": documents, "tokens": tokens}
    notes = [f"{documents} documents in a request, {tokens / documents:.0f} tokens each, with query.", *NOTES]
    return publish(f"Serving {name}", rows, COLUMNS, settings, torch.device("cpu"), notes, out)


def short_requests(folder: Path, documents: int, seed: int = 0) -> tuple[list[Asked], float]:
    """Requests of one query and so many short documents, and the mean tokens of a request's passages."""
    tokenizer = load_encoder(str(folder)).tokenizer
    rng = np.random.default_rng(seed)
    words = one_piece_words(tokenizer)
    queries = make_queries(REQUESTS, words, rng)
    texts = make_texts(rng.integers(*WORDS, size=REQUESTS * documents), words, rng)
    special = len(tokenizer("a", "a")["input_ids"]) - 2
    lengths = [
        make_store([str(number) for number in range(len(each))], each, tokenizer, 800).lengths
        for each in (queries, texts)
    ]
    tokens = documents * (special + float(lengths[0].mean()) + float(lengths[1].mean()))
    pairs = [(queries[number // documents], text) for number, text in enumerate(texts)]
    return [asked(pairs[at : at + documents]) for at in range(0, len(pairs), documents)], tokens


def _seconds(port: int, clients: int, seconds: float, requests: Sequence[Asked]) -> list[float]:
    found = run_clients(port, clients, seconds, lambda own, number: requests[(own + number * clients) % len(requests)])
    if wrong := [answer.status for answer in found if answer.status != 200]:
        raise UserError(f"{len(wrong)} of {len(found)} requests failed, the first with status {wrong[0]}")
    return [answer.seconds for answer in found]


def _row(
    clients: int,
    what: str,
    answers: dict[tuple[int, str], list[list[float]]],
    cpu: dict[tuple[int, str], float],
    documents: int,
) -> dict[str, Any]:
    rates = {each: _rates(answers[clients, each], clients) for each in (PACKED, ALONE)}
    milliseconds = {each: 1000 * cpu[clients, each] / sum(map(len, answers[clients, each])) for each in (PACKED, ALONE)}
    everything = [each for found in answers[clients, what] for each in found]
    row = {
        "clients": clients,
        "requests": what,
        "requests/s": median(rates[what]),
        "documents/s": median(rates[what]) * documents,
        "p50 (ms)": 1000 * float(np.percentile(everything, 50)),
        "p95 (ms)": 1000 * float(np.percentile(everything, 95)),
        "CPU ms/request": milliseconds[what],
        "rates": rates[what],
    }
    if what == PACKED:
        row["packed is × faster"] = ratio(rates[PACKED], rates[ALONE])
        row["CPU ×"] = milliseconds[ALONE] / milliseconds[PACKED]
    return row


def _rates(rounds: Sequence[Sequence[float]], clients: int) -> list[float]:
    """Requests per second of each round: clients that always wait, by Little's law."""
    return [clients / float(np.mean(found)) for found in rounds]
