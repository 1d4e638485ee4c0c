"""`rerank serve --collection`: the page, its JSON endpoint and the other APIs, side by side."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from rerank import Reranker
from rerank.config import CollectionSettings, Config, FirstStageSettings, OutputSettings
from rerank.pipelines.open import bm25_and
from tests.support.paths import ROOT
from tests.support.servers import SECONDS
from tests.support.small_documents import write_documents
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


def test_searches_and_other_requests_side_by_side_get_the_answers_that_they_get_alone(folder):
    words = ["bert", "--collection", "documents", "--port", "0", "--device", "cpu", "--depth", "20"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rerank", "serve", *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(re.search(r":(\d+)\n", process.stdout.readline())[1])
        with ThreadPoolExecutor(8) as pool:
            found = [pool.submit(ask, port, "/search", {"query": QUERIES[number % 4]}) for number in range(16)]
            scored = [pool.submit(ask, port, "/rerank", reranking(number)) for number in range(32)]
        page = ask(port, "/", None, urlencode({"query": "ambers"}).encode(), "application/x-www-form-urlencoded")
        form = ask(port, "/", None, None, "text/html", "GET")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    model = Reranker.load(folder / "bert", device="cpu")
    config = Config(
        collection=CollectionSettings(source=str(folder / "documents")),
        first_stage=FirstStageSettings(depth=20),
        output=OutputSettings(folder=str(folder / "runs")),
    )
    alone = bm25_and(model, "bert", config).search
    for number, future in enumerate(found):
        status, body = future.result()
        expected, hits = alone(QUERIES[number % 4]), json.loads(body)["hits"]
        assert (status, len(hits)) == (200, 0 if number % 4 == 3 else 10)
        assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-5)
        assert {hit["doc_id"]: hit["snippet"]["text"] for hit in hits} == {
            hit.doc_id: hit.snippet.text for hit in expected
        }
    for number, future in enumerate(scored):
        request = reranking(number)
        expected = model.score(request["query"], request["texts"])
        for answer in json.loads(future.result()[1]):
            assert answer["score"] == pytest.approx(float(expected[answer["index"]]), abs=1e-5)
    assert page[0] == form[0] == 200
    assert b"<mark>" in page[1]
    assert b"<mark>" not in form[1]
    assert b"documents</h1>" in form[1]
    assert process.returncode == 143
    assert "amber" not in errors


def reranking(number):
    return {"query": QUERIES[number % 3], "texts": TEXTS[number % 5 :], "raw_scores": True}


def ask(port, path, asked, body=None, content_type="application/json", method="POST"):
    """The status and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        data = body if asked is None else json.dumps(asked).encode()
        connection.request(method, path, data, {"Content-Type": content_type})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
