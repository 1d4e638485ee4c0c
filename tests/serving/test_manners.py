"""What proxies, browsers and supervisors expect of a server beside its answers."""

import contextlib
import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from rerank.serving import server as serving
from rerank.serving.app import make_app
from rerank.serving.metrics import Metrics
from rerank.utils.errors import UserError
from tests.support.patience import SECONDS, until
from tests.support.processes import beside
from tests.support.servers import BODIES, served

TEI = BODIES["/rerank"]


def test_a_gzipped_body_is_read_and_its_limit_is_of_the_content(server):
    plain = server.ask("/rerank", TEI)
    packed = server.ask("/rerank", gzip.compress(json.dumps(TEI).encode()), Content_Encoding="gzip")
    assert (packed.status, packed.json) == (200, plain.json)
    large = gzip.compress(json.dumps({**TEI, "texts": [" " * 2**26]}).encode())
    assert server.ask("/rerank", large, Content_Encoding="gzip").status == 413
    for body, line in ((b"not gzip", "the body is no gzip"), (gzip.compress(b"{}")[:-4], "its end is missing")):
        answer = server.ask("/rerank", body, Content_Encoding="gzip")
        assert answer.status == 400
        assert line in answer.json["error"]
    assert server.ask("/rerank", b"{}", Content_Encoding="br").status == 415


def test_pages_of_the_origins_may_ask_with_and_without_a_key(reranker):
    asked = {"Origin": "https://a.example", "Access_Control_Request_Method": "POST"}
    asked["Access_Control_Request_Headers"] = "authorization"
    with served(reranker, keys=("key",), origins=["https://a.example"]) as server:
        preflight = server.ask("/v1/rerank", None, "OPTIONS", **asked)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-origin"] == "https://a.example"
        assert "Authorization" in preflight.headers["access-control-allow-headers"]
        other = server.ask("/v1/rerank", None, "OPTIONS", **{**asked, "Origin": "https://b.example"})
        assert other.status == 400
        answer = server.ask("/rerank", TEI, Origin="https://a.example", Authorization="Bearer key")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://a.example")
        assert server.ask("/rerank", TEI, Origin="https://a.example").status == 401


def test_tei_and_sagemaker_call_paths_of_their_own(server):
    expected = server.ask("/rerank", TEI).json
    for path in ("/", "/invocations"):
        assert server.ask(path, TEI).json == expected
    assert server.get("/ping").status == 200
    assert server.get("/").status == 405
    (model,) = server.get("/v1/models").json["data"]
    assert model["id"] == "the model"
    assert server.get("/v1/models/the%20model").json == model
    time.sleep(1.1)
    assert server.get("/v1/models").json["data"] == [model]  # `created` does not change
    assert server.get("/v1/models/other").status == 404


def test_errors_are_objects_where_clients_of_openai_look(server):
    answer = server.ask("/v1/score", {"text_1": "a"})
    assert answer.status == 422
    assert answer.json["error"] == {"message": "text_2: is missing", "type": "Validation", "param": None, "code": 422}
    assert server.ask("/rerank", {"query": "a"}).json["error"] == "texts: is missing"
    (found,) = server.ask("/infinity/rerank", {"query": "a"}).json["detail"]  # as FastAPI's
    assert found == {"loc": ["body"], "msg": "documents: is missing", "type": "Validation"}


def test_wrong_paths_and_methods_are_counted(server):
    before = server.metric('rerank_requests_total{path="other",status="404"}')
    server.get("/nowhere")
    assert server.metric('rerank_requests_total{path="other",status="404"}') == before + 1
    server.get("/v2/rerank")
    assert server.metric('rerank_requests_total{path="/v2/rerank",status="405"}') >= 1
    server.ask("/v1/models/any", {})  # names of models are no labels: there is no end of them
    assert server.metric('rerank_requests_total{path="other",status="405"}') >= 1
    assert server.metric('rerank_requests_total{path="/v1/models/any",status="405"}') == 0


def test_openapi_describes_the_requests(server):
    found = server.get("/openapi.json").json
    assert found["openapi"].startswith("3.")
    fields = found["components"]["schemas"]["TeiRequest"]["properties"]
    assert fields.keys() == {"query", "texts", "top_n", "raw_scores", "return_text", "truncate"}
    assert {"/rerank", "/v1/rerank", "/v2/rerank", "/score", "/health"} <= found["paths"].keys()
    content = found["paths"]["/v1/rerank"]["post"]["requestBody"]["content"]["application/json"]
    assert [kind["$ref"].rpartition("/")[2] for kind in content["schema"]["anyOf"]] == ["JinaRequest", "TeiRequest"]
    assert "/search" not in found["paths"]


@pytest.mark.parametrize("sent", [b"", b"POST /rerank HTTP/1.1\r\nHost:"])
def test_a_connection_without_a_whole_request_is_closed(reranker, monkeypatch, sent):
    monkeypatch.setattr(serving, "HEAD", 0.2)
    with served(reranker) as server, server.connect() as connection:
        connection.sendall(sent)
        connection.settimeout(SECONDS)
        assert connection.recv(1) == b""


def test_a_kept_connection_without_a_whole_second_request_is_closed(server, monkeypatch):
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    assert ask_on(kept) == (200, None)
    monkeypatch.setattr(serving, "HEAD", 0.2)
    kept.sock.sendall(b"POST /rerank HTTP/1.1\r\nHost:")
    assert kept.sock.recv(1) == b""
    kept.close()


def test_a_part_of_a_request_that_came_with_a_whole_one_is_closed(server, monkeypatch):
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    assert ask_on(kept) == (200, None)
    monkeypatch.setattr(serving, "HEAD", 0.2)
    kept.sock.sendall(b"GET /ping HTTP/1.1\r\nHost: here\r\n\r\nPOST /rerank HTTP/1.1\r\nHost:")
    answer = http.client.HTTPResponse(kept.sock)
    answer.begin()
    answer.read()
    assert (answer.status, kept.sock.recv(1)) == (200, b"")
    kept.close()


def test_a_port_that_another_server_takes_in_the_meantime_is_one_line():
    first = serving.open_socket("127.0.0.1", 0)
    with first, serving.open_socket("127.0.0.1", first.getsockname()[1]) as second:
        first.listen()
        with (
            pytest.raises(UserError, match=r"^http://127\.0\.0\.1:\d+: Address already in use; take another"),
            serving.running(make_app("a model", Metrics()), second),
        ):
            raise AssertionError("it does not run")


def test_two_servers_share_a_port():
    first = serving.open_socket("127.0.0.1", 0, reuse_port=True)
    with first, serving.open_socket("127.0.0.1", first.getsockname()[1], reuse_port=True) as second:
        assert second.getsockname() == first.getsockname()


def test_a_request_on_a_kept_connection_is_answered_while_the_server_stops(reranker, monkeypatch):
    monkeypatch.setattr(serving, "LAST_REQUEST", SECONDS)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served(reranker))
        kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        assert ask_on(kept) == (200, None)
        with beside(stack.pop_all().close):
            until(lambda: is_closed(server))
            assert ask_on(kept) == (200, "close")


def ask_on(kept):
    kept.request("POST", "/rerank", json.dumps(TEI), {"Content-Type": "application/json"})
    answer = kept.getresponse()
    answer.read()
    return answer.status, answer.headers.get("connection")


def is_closed(server):
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def test_several_signals_at_once_are_one():
    """A supervisor signals a process and its group: what the command still answers is not lost."""
    program = (
        "import time\n"
        "from rerank.cli.main import run_and_exit\n"
        "def call():\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        for _ in range(600):  # a signal just before a sleep does not end that sleep\n"
        "            time.sleep(0.1)\n"
        "    except KeyboardInterrupt:\n"
        "        time.sleep(0.3)\n"
        "        print('answered', flush=True)\n"
        "        raise\n"
        "run_and_exit(call)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):  # both are there when the process goes on
            process.send_signal(number)
        assert process.stdout.readline() == "answered\n"
        assert process.wait(SECONDS) in (129, 143)  # the system chooses which of them comes first
