"""`python -m scripts.benchmarks ...` at tiny sizes: the right rows in table and JSON. No time is asserted."""

import contextlib
import json

import pytest
import torch

from rerank import Reranker
from rerank.data.collections import open_collection
from rerank.losses import LOSSES
from rerank.models.scoring import TextScorer
from rerank.pipelines.pipeline import Pipeline
from rerank.serving.app import make_app
from rerank.serving.metrics import Metrics
from rerank.serving.requests import Limits
from rerank.serving.search_page import Searches
from rerank.serving.server import address_of, open_socket, running
from rerank.serving.service import Service
from rerank.utils.errors import UserError
from scripts.benchmarks import embedding, matches, scoring, search, serving_load, serving_restart, timing, training
from scripts.benchmarks import losses as bench_losses
from scripts.benchmarks.commands import main
from scripts.benchmarks.memory import in_fresh_process
from scripts.benchmarks.timing import interleaved, ratio
from scripts.benchmarks.workload import make_encoder
from tests.scripts.planted import two_peaks
from tests.support.servers import served
from tests.support.small_collection import failed

CPU = torch.device("cpu")
PRODUCTS = [
    "matrix product in bfloat16, 2048 × 2048",
    "its layers' products, 4096 tokens",
    "matrix product in float32, 2048 × 2048",
]


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    """A tiny cross-encoder with a head of one output; narrow, it needs weights larger than BERT's."""
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return make_encoder(tmp_path_factory.mktemp("whole"), True, 1000, initializer_range=0.2, **shape)


@pytest.fixture
def rows_of(monkeypatch, tmp_path, capsys):
    """Runs a command in this process, as new ones take seconds to start, and gives its rows by their first column.

    The loss `ot` runs out of memory.
    """

    def call(function, *arguments):
        return None if arguments[0] == "ot" else function(*arguments)

    monkeypatch.setattr("rerank.models.gpu.bf16_gain", lambda: 3.0)
    monkeypatch.setattr(timing, "REPEATS", 1)
    monkeypatch.setattr(training, "GRADIENTS", {"a list of 5 documents": 5})
    monkeypatch.setattr(bench_losses, "LEAST_SECONDS", 0.0)
    monkeypatch.setitem(scoring.BATCHES, "cpu", (8, 32))
    for module in (bench_losses, training):
        monkeypatch.setattr(module, "in_fresh_process", call)

    def run(*words):
        main([*map(str, words), "--out", str(tmp_path / "out.json")])
        kept, table = json.loads((tmp_path / "out.json").read_text()), capsys.readouterr().out
        rows = {next(iter(row.values())): row for row in kept["rows"]}
        assert all(str(name) in table for name in rows)
        return rows, kept["settings"]

    return run


def test_heads(rows_of):
    rows, settings = rows_of("heads", "--largest-score", 3)
    assert list(rows) == ["a plain linear layer", "identity", "pair", "small pair"]
    assert settings["largest_score"] == 3
    assert all(0 < row["float32"] < 1e-5 < row["float16"] < 1 for row in rows.values())


def test_losses(rows_of):
    rows, settings = rows_of("losses", "--lists", 2, "--documents", 5, "--rounds", 2)
    assert list(rows) == [bench_losses.BASELINE, *LOSSES]
    assert rows.pop("ot")["ms"] == "out of memory"
    assert all(row["ms"] > 0 and row["peak MB"] >= 0 and len(row["seconds"]) == 2 for row in rows.values())
    assert [name for name, row in rows.items() if f"{bench_losses.BASELINE} / it" in row] == ["smoothi"]
    assert settings["documents"] == [5]


def test_scoring(rows_of, encoder_folder):
    rows, _ = rows_of("scoring", "--encoder", encoder_folder, "--documents", 8, "--rounds", 1)
    peers = [what for what in rows if what.startswith("predict, batch")]
    assert list(rows) == [*PRODUCTS, scoring.OURS, scoring.EXACT, *peers, scoring.OURS_LONG]
    assert "predict, batch 32" in peers
    assert all(rows[what][scoring.OURS_FASTER] > 0 for what in (scoring.EXACT, *peers))
    for what in [scoring.OURS, scoring.OURS_LONG, *peers]:
        assert rows[what]["documents/s"] == pytest.approx(8 / rows[what]["seconds"][0])
        assert rows[what]["tokens/s"] > rows[what]["documents/s"]


def test_exports(rows_of, encoder_folder):
    pytest.importorskip("nncf")
    rows, _ = rows_of("exports", "--encoder", encoder_folder, "--documents", 8, "--rounds", 1)
    graphs = [f"exported, {form}, {precision}" for form in ("onnx", "openvino") for precision in ("float32", "int8")]
    assert list(rows) == [scoring.OURS, scoring.EXACT, *graphs]


def test_embedding(rows_of):
    rows, _ = rows_of("embedding", "--encoder", "small", "--documents", 2, "--rounds", 1)
    names = ["rerank, float32", "rerank, bf16", *(f"encode, batch {size}" for size in embedding.BATCHES)]
    assert list(rows) == [f"{name}, {kind} documents" for kind in embedding.LONGEST for name in names]
    assert all(row["documents/CPU s"] > 0 and row["× encode"] > 0 for row in rows.values())
    assert rows["rerank, float32, long documents"]["difference"] < 1e-5


def test_fine_tuning(rows_of):
    rows, _ = rows_of("fine-tuning", "--encoder", "small", "--lists", 3, "--rounds", 1)
    names = ["float32", "bf16"]
    assert list(rows) == [f"{who}, {name}" for name in names for who in ("rerank", "SentenceTransformerTrainer")]
    assert all(rows[f"SentenceTransformerTrainer, {name}"]["rerank is × faster"] > 0 for name in names)


def test_training(rows_of, encoder_folder):
    rows, settings = rows_of("training", "--encoder", encoder_folder, "--lists", training.LISTS_PER_STEP, "--rounds", 1)
    peers = [training.BASELINE, training.UNDROPPED]
    assert list(rows) == [*PRODUCTS, training.OURS, training.EXACT, *peers, training.SCORING]
    ours, peer = rows[training.OURS], rows[training.BASELINE]
    assert ours["documents/s"] == pytest.approx(training.LISTS_PER_STEP * training.LIST / ours["seconds"][0])
    assert ours["peak MB"] > 0
    assert list(settings["gradients"]) == ["a list of 5 documents"]
    assert peer[training.OURS_FASTER] == pytest.approx(ours["documents/s"] / peer["documents/s"])
    hours = training.paper_hours(ours["documents/s"], rows[training.SCORING]["documents/s"])
    assert settings["paper_hours"] == pytest.approx(hours)


def test_training_beside_sentence_transformers(rows_of, encoder_folder):
    words = ["--encoder", encoder_folder, "--lists", 1, "--rounds", 1, "--one-passage"]
    rows, settings = rows_of("training", *words)
    assert rows[training.TRAINER][training.OURS_FASTER] > 0
    assert settings["gradients"] == {}


@pytest.mark.usefixtures("here")
def test_search(rows_of, monkeypatch):
    """The pipelines are served in this process; the copies of the documents are not encoded."""

    @contextlib.contextmanager
    def in_process(folder, *_):
        metrics, bound = Metrics(), open_socket("127.0.0.1", 0)
        searches = Searches(Pipeline.load(folder).find, "towns", metrics)
        with bound, running(make_app("towns", metrics, searches=searches), bound):
            yield address_of(bound)

    monkeypatch.setattr(search, "server_process", in_process)
    monkeypatch.setattr(search, "WARMING", 1)
    monkeypatch.setitem(search.SHAPES, "minilm", {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2})
    rows, settings = rows_of(
        "search", "towns", "--encoder", "encoder", "--documents", 60, "--queries", 5, "--folder", "k"
    )
    stages = ["bm25", "dense", "feedback", "fused", "late", "neighbours", "adapter"]
    assert [name for name in rows if name.startswith("stage")] == [f"stage {name}" for name in stages]
    assert rows["/search up to cross-encoder, 8 clients"]["p95 (ms)"] > 0
    assert settings["documents"] == 60
    assert open_collection("k/60/collection").count() == 60


@pytest.mark.usefixtures("here")
def test_matches(capsys, monkeypatch):
    monkeypatch.setattr(matches, "GIBBERISH", 5)
    main(["matches", "towns", "--encoder", "encoder", "--queries", "5", "--folder", "kept"])
    shown = capsys.readouterr().out
    kinds = [line.split()[:2] for line in shown.splitlines() if line.startswith("towns")]
    assert kinds == [["towns", "best"], ["towns", "random"], ["towns", "15"]]


@pytest.fixture
def server(encoder_folder, monkeypatch):
    """Stands in for the process of `rerank serve`."""

    @contextlib.contextmanager
    def in_process(checkpoint):
        with served(Reranker.load(checkpoint)) as server:
            yield f"http://127.0.0.1:{server.port}"

    monkeypatch.setattr(serving_load, "server_process", in_process)
    monkeypatch.setattr(serving_load, "REQUESTS", 12)
    monkeypatch.setattr(serving_load, "SIZES", (1, 4))


@pytest.mark.usefixtures("server")
def test_serving_load(rows_of, encoder_folder, monkeypatch):
    rows, _ = rows_of("serving-load", "--seconds", 1, "--clients", 8, "--encoder", encoder_folder)
    (row,) = rows.values()
    assert row["answers"] >= 8
    assert (row["not 200"], row["wrong scores"]) == (0, 0)
    assert row["spread"] > 0.1
    assert 0 < row["MiB, first quarter"] <= row["MiB, end"]
    score, requests = TextScorer.score_packed, serving_load.mixed_requests(encoder_folder)

    def shifted(self, inputs):
        scored = score(self, inputs)
        return scored._replace(scores=scored.scores + 1e-4)

    monkeypatch.setattr(TextScorer, "score_packed", shifted)
    monkeypatch.setattr(serving_load, "mixed_requests", lambda folder: requests)
    with pytest.raises(UserError, match="have wrong scores"):
        serving_load.serving_load(encoder=str(encoder_folder), seconds=0.2, clients=2)


def test_serving_restart(rows_of, encoder_folder, monkeypatch):
    """One server stands in for the two, so that the kernel can lose no connection."""
    reranker = Reranker.load(encoder_folder)
    with contextlib.ExitStack() as stack:

        @contextlib.contextmanager
        def in_process(_, *flags, port):
            if port not in started:
                service = Service(reranker, "tiny", Limits(), Metrics())
                stack.callback(service.stop)
                bound = stack.enter_context(open_socket("127.0.0.1", port))
                answering = service if port in answered else None
                stack.enter_context(running(make_app("tiny", service.metrics, answering), bound))
            started.append(port)
            assert flags == ("--reuse-port",)
            yield

        started, answered = [], range(2**16)
        monkeypatch.setattr(serving_restart, "server_process", in_process)
        words = ["--encoder", encoder_folder, "--requests", 6, "--clients", 2]
        rows, _ = rows_of("serving-restart", *words)
        assert list(rows) == ["one a request", "kept"]
        assert all(row["answers"] >= 6 and row["lost"] == 0 for row in rows.values())
        assert [started.count(port) for port in dict.fromkeys(started)] == [2, 2]
        answered = ()
        with pytest.raises(UserError, match=r"^\d+ requests are lost: see the table$"):
            serving_restart.serving_restart(encoder=str(encoder_folder), requests=2, clients=1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["losses", "--lists", "0"], "Must be >= 1"),
        (["scoring", "--documents", "1"], "Must be >= 4"),
        (["losses", "--out", "."], "--out .: is a folder"),
    ],
)
def test_a_mistake_is_one_line(capsys, words, expected):
    assert expected in failed(capsys, *words, main=main)


def test_a_peak_is_that_of_its_work_alone():
    large, small = in_fresh_process(two_peaks)
    assert large.most - large.before == pytest.approx(64e6, rel=0.2)
    assert small.most - small.before < 20e6  # though it came after the large one


def test_contestants_take_turns_and_a_ratio_compares_each_round_with_itself():
    calls = []
    seconds = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3, CPU)
    assert calls == ["a", "b"] * 3
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}
    assert interleaved({"a": lambda: calls.append("a")}, 1, CPU, least=0.01)["a"][0] * (len(calls) - 6) >= 0.01
    assert ratio([2.0, 30.0, 9.0], [1.0, 10.0, 1.0]) == 3.0
