"""Clients of a server of `rerank serve`, each in a thread with a connection of its own, and the server's process."""

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rerank.utils.errors import UserError

SECONDS = 120
"""The longest wait for an answer, and for a server to start or to stop."""


class Asked(NamedTuple):
    """A request to /score: its pairs, and their scores if they are known."""

    body: bytes
    scores: np.ndarray | None


class Answered(NamedTuple):
    """How long an answer took, its status, and the largest difference from the known scores."""

    seconds: float
    status: int
    difference: float


def asked(pairs: Sequence[tuple[str, str]], scores: np.ndarray | None = None) -> Asked:
    """The request for the raw scores of these pairs."""
    body = {"queries": [q for q, _ in pairs], "documents": [d for _, d in pairs], "use_activation": False}
    return Asked(json.dumps(body).encode(), scores)


@contextlib.contextmanager
def server_process(*command: str) -> Iterator[int]:
    """Runs `python -m command`, which prints its address, and gives the port; ends it with SIGTERM."""
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise UserError(f"{' '.join(command)}: did not start; its error is above")
        yield int(line.rstrip().rpartition(":")[2])
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_clients(port: int, clients: int, seconds: float, choose: Callable[[int, int], Asked]) -> list[Answered]:
    """The answers to `clients` that ask again and again for so many seconds.

    `choose(client, number)` is the request of a client. A connection that breaks counts as an answer of status 0.
    """
    answers: list[Answered] = []
    end = time.monotonic() + seconds

    def client(own: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        number = 0
        while time.monotonic() < end:
            answers.append(_ask(connection, choose(own, number)))
            number += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(own,)) for own in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _ask(connection: http.client.HTTPConnection, request: Asked) -> Answered:
    started = time.perf_counter()
    try:
        connection.request("POST", "/score", request.body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return Answered(time.perf_counter() - started, 0, 0.0)
    seconds = time.perf_counter() - started
    if response.status != 200 or request.scores is None:
        return Answered(seconds, response.status, 0.0)
    found = np.array([item["score"] for item in json.loads(body)["data"]])
    return Answered(seconds, response.status, float(np.abs(found - request.scores).max()))


def metrics(port: int) -> dict[str, float]:
    """The values of the server's metrics, by their names with labels."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    lines: list[Any] = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}
