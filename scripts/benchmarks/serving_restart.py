"""A second `rerank serve --reuse-port` takes over from the first one, while clients ask: requests that are lost."""

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Annotated

import httpx
import torch
from cyclopts import Parameter

from rerank.utils.errors import UserError
from scripts.benchmarks.report import Count, Out, publish
from scripts.benchmarks.serving_load import WAIT, server_process
from scripts.benchmarks.workload import open_encoder

BODY = {"queries": ["a query"], "documents": ["a document"], "use_activation": False}
COLUMNS = {"connections": "", "clients": "d", "answers": ",d", "lost": "d"}
NOTES = (
    "The second server starts while clients ask the first one, which then gets SIGTERM. lost: requests without an "
    "answer of status 200.",
)


def serving_restart(
    *,
    encoder: Annotated[str, Parameter(help="small, a BERT of two layers; or as elsewhere.")] = "small",
    requests: Count = 400,
    clients: Count = 8,
    rounds: Count = 1,
    out: Out = None,
) -> None:
    """A second server takes the port of a first one, which is stopped: none of the requests may be lost.

    Exit code 2 if one is.

    Parameters
    ----------
    requests
        Requests from the start of the second server on.
    clients
        Clients that ask at once.
    rounds
        Times that a server takes over.
    """
    rows = []
    with open_encoder(encoder, own_head=True) as folder:
        for keep in (False, True):
            answers = [_take_over(str(folder), requests, clients, keep) for _ in range(rounds)]
            statuses = [status for some in answers for status in some]
            rows.append(
                {
                    "connections": "kept" if keep else "one a request",
                    "clients": clients,
                    "answers": len(statuses),
                    "lost": sum(status != 200 for status in statuses),
                }
            )
    settings = {"encoder": encoder, "requests": requests, "clients": clients, "rounds": rounds}
    publish("A second server takes over", rows, COLUMNS, settings, torch.device("cpu"), NOTES, out)
    if lost := sum(row["lost"] for row in rows):
        raise UserError(f"{lost} requests are lost: see the table")


def _take_over(checkpoint: str, requests: int, clients: int, keep: bool) -> list[int]:
    """The statuses of the answers, 0 for a broken connection, from the start of the second server on."""
    port, begin, end = _free_port(), Event(), Event()

    def client() -> list[int]:
        statuses = []
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT, trust_env=False) as kept:
            while not end.is_set():
                try:
                    ask = kept.post if keep else httpx.post
                    place = "/score" if keep else f"http://127.0.0.1:{port}/score"
                    more = {} if keep else {"timeout": WAIT, "trust_env": False}
                    status = ask(place, json=BODY, **more).status_code
                except httpx.HTTPError:
                    status = 0
                if begin.is_set():
                    statuses.append(status)
                counted.append(status)
        return statuses

    counted: list[int] = []
    with ThreadPoolExecutor(clients) as pool, contextlib.ExitStack() as second:
        with server_process(checkpoint, "--reuse-port", port=port):
            asking = [pool.submit(client) for _ in range(clients)]
            begin.set()
            second.enter_context(server_process(checkpoint, "--reuse-port", port=port))
            before = len(counted)
        while len(counted) < before + requests:  # the first server has stopped
            time.sleep(0.01)
        end.set()
        return [status for one in asking for status in one.result()]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
