"""The int8 graph of a served model: taken if it is faster and ranks alike, made once."""

import pytest

from rerank import Reranker
from rerank.jobs import graphs
from rerank.jobs.graphs import Sample, int8_if_faster, texts_of_python
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

pytest.importorskip("nncf")
QUERIES = {"a": "amber birch", "b": "cedar"}
DOCUMENTS = {query_id: {f"{query_id}{n}": " ".join(WORDS[n : n + 3]) for n in range(4)} for query_id in QUERIES}
SAMPLE = Sample("four texts", QUERIES, DOCUMENTS, {"b": dict.fromkeys(DOCUMENTS["b"], 1)})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8") / "bert"
    make_cross_encoder("bert", folder, WORDS)
    return folder


@pytest.fixture
def limits(monkeypatch, tmp_path):
    """Sets what is expected of an int8 graph; nothing is, unless a test says so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def expect(**values):
        for name, value in ({"SMALL": 0, "LEAST_GAIN": 0, "LEAST_TAU": -1, "MOST_LOST": 2} | values).items():
            monkeypatch.setattr(graphs, name, value)

    expect()
    return expect


def test_a_graph_is_made_once_and_scores_as_the_model(checkpoint, limits, caplog):
    model = Reranker.load(checkpoint, device="cpu")
    samples = iter([SAMPLE])
    first = int8_if_faster(model, lambda: next(samples))
    assert "bert: served in int8" in caplog.text
    second = int8_if_faster(model, lambda: next(samples))  # asks for no other sample
    texts = list(DOCUMENTS["b"].values())
    assert first.score("cedar", texts) == pytest.approx(model.score("cedar", texts), abs=0.01)
    assert second.score("cedar", texts) == pytest.approx(first.score("cedar", texts))
    assert (first.scorer.precision, first.model.max_doc_tokens) == ("int8", model.model.max_doc_tokens)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"LEAST_GAIN": 1e9}, "times as fast here"),
        ({"LEAST_TAU": 1.1}, "int8 ranks otherwise, with Kendall's tau"),
        ({"MOST_LOST": -1}, "int8 loses 0.0000 ± 0.0000 of nDCG@10 1.0000"),
    ],
)
def test_a_graph_that_does_not_serve_is_not_taken_and_a_line_says_why(checkpoint, limits, caplog, values, line):
    limits(**values)
    model = Reranker.load(checkpoint, device="cpu")
    samples = iter([SAMPLE])
    assert int8_if_faster(model, lambda: next(samples)) is model
    assert int8_if_faster(model, lambda: next(samples)) is model
    assert caplog.text.count("bert: served in float32: ") == 2
    assert line in caplog.text


def test_a_model_that_cannot_be_exported_is_served_as_it_is(tmp_path, limits, caplog):
    make_cross_encoder("deberta-v2", tmp_path / "deberta", WORDS)
    model = Reranker.load(tmp_path / "deberta", device="cpu")
    assert int8_if_faster(model, lambda: SAMPLE) is model
    assert "DebertaV2" in caplog.text


def test_nothing_is_made_for_a_small_model(checkpoint, limits, tmp_path):
    limits(SMALL=10**9)
    model = Reranker.load(checkpoint, device="cpu")
    assert int8_if_faster(model, lambda: SAMPLE) is model
    assert not any(tmp_path.iterdir())


def test_a_model_in_bf16_is_compared_as_it_is(checkpoint, limits, caplog):
    limits(LEAST_GAIN=1e9)
    model = Reranker.load(checkpoint, device="cpu", precision="bf16")
    assert int8_if_faster(model, lambda: SAMPLE) is model
    assert "bert: served in bf16: int8 is " in caplog.text


def test_the_texts_of_python_are_queries_with_as_many_documents_each():
    sample = texts_of_python()
    assert len(sample.queries) == len(sample.documents) == graphs.QUERIES
    assert all(len(set(texts.values())) == graphs.DOCUMENTS for texts in sample.documents.values())
    assert all(sample.queries.values())
