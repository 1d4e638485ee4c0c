"""`rerank serve` as it is started and stopped: its address, SIGTERM under load, and what it refuses."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from rerank import Reranker
from tests.support.paths import ROOT
from tests.support.servers import SECONDS, wait_until
from tests.support.small_collection import failed
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

TEXTS = [f"{' '.join(WORDS[:number])} {number}" for number in range(20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_cross_encoder("bert", tmp_path_factory.mktemp("served") / "bert", WORDS, max_positions=24)


def test_sigterm_under_load_finishes_what_is_in_flight(folder):
    """Each of 16 clients asks again and again: every answer is whole and right, until there is no server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rerank", "serve", str(folder), "--port", "0", "--device", "cpu"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        port = int(re.fullmatch(rf"serving {re.escape(str(folder))} at http://127\.0\.0\.1:(\d+)\n", line)[1])
        answers, cut = [], []
        clients = [threading.Thread(target=_ask_on, args=(port, answers, cut)) for _ in range(16)]
        for client in clients:
            client.start()
        wait_until(lambda: len(answers) > 50)
        process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join(SECONDS)
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 143
    assert errors.splitlines()[-2:] == [
        "finishing the requests in flight",
        "rerank: terminated; nothing is left half-written, and the same command goes on from here",
    ]
    assert "amber" not in errors
    assert not cut
    expected = Reranker.load(folder, device="cpu").score("amber", TEXTS).tolist()
    for answer in answers:
        scores = {rank["index"]: rank["score"] for rank in answer}
        assert scores == pytest.approx(dict(enumerate(expected)), abs=1e-5)


def _ask_on(port, answers, cut):
    """Asks until nobody accepts; a request that was sent and not answered is cut."""
    body = json.dumps({"query": "amber", "texts": TEXTS, "raw_scores": True})
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            connection.connect()
        except OSError:
            return
        try:
            connection.request("POST", "/rerank", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answers.append(json.loads(response.read()))
        except (http.client.HTTPException, OSError) as error:
            # Connected, but not accepted before the end: the server never saw it.
            if not isinstance(error, ConnectionResetError | http.client.RemoteDisconnected | BrokenPipeError):
                cut.append(error)
            return
        finally:
            connection.close()


def test_a_port_in_use_is_one_line(capsys, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = failed(capsys, "serve", str(folder), "--port", str(port))
    assert f"--host 127.0.0.1 --port {port}: Address already in use" in line
