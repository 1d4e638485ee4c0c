"""The search of a collection with BM25 and a cross-encoder: its hits are theirs, with snippets."""

import json
from pathlib import Path

import pytest

from rerank import open_collection
from rerank.config import CollectionSettings, Config, EncoderSettings, FirstStageSettings
from rerank.data.types import Fold
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.open import bm25_and
from rerank.pipelines.pipeline import Pipeline
from rerank.pipelines.stages import RunFileStage
from rerank.pipelines.stages.world import World
from rerank.retrieval.bm25 import retrieve
from rerank.training.device import open_reranker
from rerank.utils.errors import UserError
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

QUERY = "Amber0 goods"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A cross-encoder whose passages have 24 tokens, and which takes the best passage of a document."""
    folder = tmp_path_factory.mktemp("model") / "bert"
    make_cross_encoder("bert", folder, [*WORDS, "amber0", "good", "bad"], max_positions=24)
    return open_reranker(Config(encoder=EncoderSettings(pooling="max")), str(folder))


def settings(source="towns", **collection):
    return Config(collection=CollectionSettings(source=source, **collection), first_stage=FirstStageSettings(depth=20))


def opened(model, source="towns", **collection):
    """BM25 and the model on a collection."""
    return bm25_and(model, "bert", settings(source, **collection))


def test_hits_have_the_ranks_and_scores_of_both_stages(here, model):
    pipeline = opened(model)
    hits = pipeline.search(QUERY, top=20)
    Path("asked.tsv").write_text(f"q\t{QUERY}\n")
    collection = open_collection("towns", "asked.tsv")
    first = retrieve(collection, depth=20)["q"]
    assert len(first) == len(hits) == 20
    assert [hit.rank for hit in hits] == list(range(1, 21))
    assert {hit.doc_id: hit.stages["bm25"][1] for hit in hits} == pytest.approx(first, abs=1e-5)
    assert [hit.doc_id for hit in sorted(hits, key=lambda hit: hit.stages["bm25"][0])] == list(first)
    assert [hit.stages["cross-encoder"] for hit in hits] == [(hit.rank, hit.score) for hit in hits]
    again = model.rerank({"q": first}, collection)["q"]
    assert {hit.doc_id: hit.score for hit in hits} == pytest.approx(again, abs=1e-5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert pipeline.search(QUERY, top=3) == hits[:3]


def test_a_snippet_is_of_the_passage_that_scored_highest(here, model):
    write(Path("long"), {"d": ("", " ".join(WORDS * 10) + " amber0 " + " ".join(reversed(WORDS * 10)))})
    (hit,) = opened(model, "long").search("amber0")
    shown = hit.snippet.text
    text = next(open_collection("long").get(["d"])).text
    assert shown in text
    assert len(shown.split()) <= 24
    assert model.score("amber0", [shown])[0] == pytest.approx(hit.score, abs=1e-5)
    assert hit.text.text == text
    assert hit.text.cut(*hit.passage).text == shown
    assert {part for part, is_mark in hit.text.parts() if is_mark} == {"amber0"}


def test_a_title_is_marked_and_not_repeated(here, model):
    write(Path("titled"), {"d": ("Goods of a town", "amber0 is good"), "e": ("Good", "")})
    hits = {hit.doc_id: hit for hit in opened(model, "titled").search(QUERY)}
    assert hits["d"].title.parts() == [("Goods", True), (" of a town", False)]
    assert hits["d"].snippet.parts() == [("amber0", True), (" is ", False), ("good", True)]
    assert hits["d"].text.parts() == hits["d"].snippet.parts()
    assert hits["d"].passage == (0, len("amber0 is good"))
    assert (hits["e"].title.parts(), hits["e"].snippet.parts(), hits["e"].text.parts()) == ([("Good", True)], [], [])


@pytest.mark.parametrize("query", ["the of and", "zzzz", "?!", "the " * 5000])
def test_a_query_without_a_word_of_the_index_has_no_hits_and_asks_no_model(here, model, query, monkeypatch):
    monkeypatch.setattr(model, "scorer", None)
    assert opened(model).search(query) == []


def test_neither_the_log_nor_an_error_shows_the_query(here, model, caplog):
    pipeline = opened(model)
    for query in ("secretword", "amber0 secretword", "secretword " * 3000):
        pipeline.search(query)
    Path("towns/corpus.jsonl").unlink()
    with pytest.raises(UserError) as failed:
        pipeline.search("secretword")
    assert "secretword" not in f"{failed.value}{caplog.text}"


def test_it_needs_documents_alone(here, model):
    write(Path("alone"), {"d": ("", "amber0")})
    pipeline = opened(model, "alone")
    assert [hit.doc_id for hit in pipeline.search(QUERY)] == ["d"]


def write(folder, documents):
    folder.mkdir()
    lines = [{"_id": doc_id, "title": title, "text": text} for doc_id, (title, text) in documents.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_function_words_are_not_marked_and_are_no_answer(here, model):
    write(Path("asking"), {"d": ("", "what a town"), "e": ("", "which fjord")})
    pipeline = opened(model, "asking")

    def marked(query):
        return {part for hit in pipeline.search(query) for part, is_mark in hit.snippet.parts() if is_mark}

    assert marked("what town") == {"town"}
    assert marked("what") == {"what"}  # it has no other words
    assert pipeline.find("what town").note == pipeline.find("what").note == ""
    found = pipeline.find("what zzzz", 1)
    assert ([hit.doc_id for hit in found.hits], found.total) == (["d"], 1)
    assert "No document has a word of the query" in found.note
    assert pipeline.find("zzzz") == ([], 0, "")
    assert pipeline.find("what which", 1).total == 2


def test_a_query_of_a_run_file_is_never_taken_for_that_of_a_search(here):
    """Whatever its id is, also where the collection has it."""
    (qrels := Path("towns/qrels/test.tsv")).write_text(qrels.read_text().replace("q1\t", "query\t"))
    (queries := Path("towns/queries.jsonl")).write_text(queries.read_text().replace('"q1"', '"query"'))
    Path("towns.run").write_text("query Q0 d1 1 1.0 towns\n")
    world = World.open(settings())
    stage = RunFileStage("towns.run")
    pipeline = Pipeline.of(Fitted({"run": stage}, world, {"run": stage.fit(world, Fold("1", (), (), ()), [], Path())}))
    assert list(pipeline.rank({"query": "any"})) == ["query"]
    with pytest.raises(UserError, match=r"towns\.run: has no query of this search: a stage of kind run ranks only"):
        pipeline.search("another text")
