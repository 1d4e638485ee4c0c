"""`rerank serve`: the page, its JSON endpoint and the other APIs, side by side; SIGTERM under load; a port in use."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from functools import partial

import pytest
from safetensors.torch import load_file, save_file

from rerank import Reranker
from rerank.config import CollectionSettings, Config, FirstStageSettings, OutputSettings
from rerank.pipelines.open import bm25_and, older_than, open_to_serve
from tests.support.paths import ROOT
from tests.support.patience import until
from tests.support.servers import SECONDS, Server, in_threads
from tests.support.small_collection import failed, write_documents
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

TEXTS = [" ".join(WORDS[:number]) for number in range(1, 20)]
QUERIES = ["amber ambers", "birch of the river", "cedar delta", "unknown"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    make_cross_encoder("bert", folder / "bert", WORDS, max_positions=24)
    write_documents(folder / "documents")
    return folder


@pytest.fixture
def process(folder):
    """A server of a model and a collection, in a process of its own."""
    words = ["bert", "--collection", "documents", "--port", "0", "--device", "cpu", "--depth", "20"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rerank", "serve", *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_requests_side_by_side_get_what_they_get_alone_and_sigterm_under_load_finishes_them(folder, process):
    """Each of 16 clients asks again and again: every answer is whole and right, until there is no server."""
    line = process.stdout.readline()
    server = Server(None, int(re.fullmatch(r"serving bert at http://127\.0\.0\.1:(\d+)\n", line)[1]))
    assert process.stdout.readline() == f"search page at http://127.0.0.1:{server.port}/\n"
    searches = [partial(server.ask, "/search", {"query": QUERIES[number % 4]}) for number in range(16)]
    requests = [
        {"query": QUERIES[number % 3], "texts": TEXTS[number % 5 :], "raw_scores": True} for number in range(32)
    ]
    answers = in_threads([*searches, *(partial(server.ask, "/rerank", request) for request in requests)])
    page = server.get("/?query=ambers")
    form = server.get("/")
    under_load, cut = [], []
    clients = [threading.Thread(target=ask_on, args=(server.port, under_load, cut)) for _ in range(16)]
    for client in clients:
        client.start()
    until(lambda: len(under_load) > 50)
    process.send_signal(signal.SIGTERM)
    for client in clients:
        client.join(SECONDS)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert errors.splitlines()[-2:] == [
        "finishing the requests in flight",
        "rerank: terminated; the server has stopped; every request that had arrived was answered",
    ]
    assert "amber" not in errors
    assert not cut

    model = Reranker.load(folder / "bert", device="cpu")
    config = Config(
        collection=CollectionSettings(source=str(folder / "documents")),
        first_stage=FirstStageSettings(depth=20),
        output=OutputSettings(folder=str(folder / "runs")),
    )
    alone = bm25_and(model, "bert", config).search
    for number, answer in enumerate(answers[:16]):
        expected, hits = alone(QUERIES[number % 4]), answer.json["hits"]
        assert (answer.status, len(hits)) == (200, 0 if number % 4 == 3 else 10)
        assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-5)
        assert {hit["doc_id"]: hit["snippet"]["text"] for hit in hits} == {
            hit.doc_id: hit.snippet.text for hit in expected
        }
    scored = [*zip(requests, (answer.json for answer in answers[16:]), strict=True)]
    for request, ranks in [*scored, *((requests[0], ranks) for ranks in under_load)]:
        expected = model.score(request["query"], request["texts"])
        assert {rank["index"]: rank["score"] for rank in ranks} == pytest.approx(
            dict(enumerate(expected.tolist())), abs=1e-5
        )
    assert page.status == form.status == 200
    assert b"<mark>" in page.body
    assert b"<mark>" not in form.body
    assert b"documents</h1>" in form.body


def ask_on(port, answers, cut):
    """Asks until nobody accepts; a request that was sent and not answered is cut."""
    body = json.dumps({"query": QUERIES[0], "texts": TEXTS, "raw_scores": True})
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
        line = failed(capsys, "serve", str(folder / "bert"), "--port", str(port))
    assert f"--host 127.0.0.1 --port {port}: Address already in use" in line


def test_a_model_that_cannot_score_is_one_line(capsys, folder, tmp_path):
    checkpoint = shutil.copytree(folder / "bert", tmp_path / "broken")
    weights = load_file(checkpoint / "model.safetensors")
    weights["classifier.weight"][:] = float("nan")
    save_file(weights, checkpoint / "model.safetensors", {"format": "pt"})
    line = failed(capsys, "serve", str(checkpoint), "--port", "0", "--device", "cpu")
    assert line.endswith("broken: the model's score is not finite; is the checkpoint broken?")


def test_a_server_has_the_documents_that_it_opened(folder, tmp_path):
    shutil.copytree(folder / "documents", tmp_path / "documents")
    config = Config(
        collection=CollectionSettings(source=str(tmp_path / "documents")),
        first_stage=FirstStageSettings(depth=20),
        output=OutputSettings(folder=str(tmp_path / "runs")),
    )
    (tmp_path / "copy").mkdir()
    _, pipeline = open_to_serve(str(folder / "bert"), config, None, None, tmp_path / "copy")
    origin, corpus = pipeline.fitted.world.collection.origin, tmp_path / "documents" / "corpus.jsonl"

    def found():
        return [(hit.doc_id, hit.score, hit.text.text) for hit in pipeline.search(QUERIES[0])]

    before = found()
    assert older_than(origin) == ""
    corpus.write_text(corpus.read_text().replace("amber", "jetty"))  # lines of the same length
    assert found() == before
    assert older_than(origin).startswith(f"serving the documents that {tmp_path}/documents had at the start")
    corpus.unlink()
    assert found() == before
