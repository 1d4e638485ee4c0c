"""The benchmarks of the server, against servers in this process."""

import contextlib
import json

import pytest

from rerank import Reranker
from rerank.models.text_scorer import TextScorer
from rerank.serving.engine import Engine
from rerank.serving.metrics import Metrics
from rerank.utils.errors import UserError
from scripts.benchmarks import serving, serving_load
from scripts.benchmarks.served import take_first
from scripts.benchmarks.workload import make_encoder
from tests.support.servers import served


@contextlib.contextmanager
def in_process(*command):
    """The server that `python -m command` would run."""
    folder, take = (command[2], "all") if command[0] == "rerank" else command[1:]
    reranker, metrics = Reranker.load(folder), Metrics()
    parts = (
        {"engine": Engine(reranker.scorer, 10_000, metrics, take_first), "metrics": metrics} if take == "first" else {}
    )
    with served(reranker, **parts) as server:
        yield server.port


@pytest.fixture
def small(tmp_path, monkeypatch):
    for module in (serving, serving_load):
        monkeypatch.setattr(module, "server_process", in_process)
    monkeypatch.setattr(serving_load, "REQUESTS", 12)
    monkeypatch.setattr(serving_load, "SIZES", (1, 4))
    return str(make_encoder(tmp_path, own_head=True, **serving_load.SMALL, initializer_range=serving_load.SPREAD))


def test_every_score_under_load_is_right_and_memory_is_reported(small, tmp_path):
    table = serving_load.serving_load(small, 1, 8, tmp_path / "load.json")
    (row,) = json.loads((tmp_path / "load.json").read_text())["rows"]
    assert row["answers"] >= 8
    assert (row["not 200"], row["wrong scores"]) == (0, 0)
    assert row["largest difference"] <= 1e-5
    assert row["spread"] > 0.1
    assert row["requests in a pass"] > 1
    assert 0 < row["MiB, first quarter"] <= row["MiB, end"]
    assert "Load on rerank serve" in table


def test_a_wrong_score_is_an_error(small, monkeypatch):
    score = TextScorer.score_packed

    def shifted(self, inputs):
        scored = score(self, inputs)
        return scored._replace(scores=scored.scores + 1e-4)

    monkeypatch.setattr(TextScorer, "score_packed", shifted)
    with pytest.raises(UserError, match="have wrong scores"):
        serving_load.serving_load(small, 0.2, 2)


def test_packed_requests_are_compared_with_one_at_a_time(small, tmp_path):
    serving.bench_serving(small, 1, 0.2, 2, clients=(1, 4), out=tmp_path / "serving.json")
    report = json.loads((tmp_path / "serving.json").read_text())
    rows = report["rows"]
    assert [(row["clients"], row["requests"]) for row in rows] == [
        (1, "packed"), (1, "one at a time"), (4, "packed"), (4, "one at a time")
    ]  # fmt: skip
    assert all(row["requests/s"] > 0 and row["p50 (ms)"] <= row["p95 (ms)"] for row in rows)
    assert ["packed is × faster" in row for row in rows] == [True, False, True, False]
    assert all(row["CPU ms/request"] > 0 for row in rows)
    assert report["settings"]["documents"] == 2


def test_wrong_numbers_are_refused(small):
    with pytest.raises(UserError, match="--documents 0"):
        serving.bench_serving(small, 1, 1, 0)
