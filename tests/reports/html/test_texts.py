"""Passages and excerpts: what the model read is what the reader sees."""

import json
import random

import pytest
from transformers import AutoTokenizer

from rerank.cli.main import main
from rerank.data import passage_texts
from rerank.data.tokens import pieces
from rerank.models.scoring import score_candidates
from rerank.reports.html.queries import passage
from tests.support.parsed_html import Page
from tests.support.small_collection import command
from tests.support.small_world import WORDS, make_inputs, make_texts
from tests.support.tiny_encoders import KINDS, make_encoder

ENCODER = {"max_doc_tokens": 100}


@pytest.mark.parametrize("kind", KINDS)
def test_a_passage_is_the_text_of_the_tokens_that_the_model_read(tmp_path, kind):
    folder = make_encoder(kind, tmp_path / kind, WORDS, max_positions=48)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = make_texts({"long": 200, "short": 5, "empty": 0})
    inputs_of = make_inputs(tmp_path / "tokens", tokenizer, 48, {"q": "amber birch"}, texts, max_doc_tokens=100)
    for doc_id, text in texts.items():
        bounds = inputs_of.split("q", doc_id).tolist()
        for number, (begin, end) in enumerate(bounds):
            read = tokenizer.decode(inputs_of.documents[doc_id][begin:end]).strip()
            shown = passage(text, number, len(bounds), folder, ENCODER)
            assert shown.split() == read.split() if len(bounds) > 1 else shown == text


def test_without_the_checkpoint_the_whole_text_is_shown(tmp_path):
    assert passage("one two three", 1, 2, tmp_path, ENCODER) == "one two three"


@pytest.mark.parametrize("kind", KINDS)
def test_a_passage_of_a_long_text_is_that_of_the_whole_text(tmp_path, kind, monkeypatch):
    folder = make_encoder(kind, tmp_path / kind, WORDS, max_positions=48)
    rng = random.Random(kind)
    words = [*WORDS, "a", "é", "(b),", "\n", "  ", "c's"]
    several = [" ".join(rng.choices(words, k=rng.randint(0, 200))) for _ in range(20)]

    def shown():
        return [passage(text, number, 3, folder, ENCODER) for text in several for number in range(3)]

    whole = shown()
    monkeypatch.setattr(passage_texts, "pieces", lambda text: pieces(text, size=25))
    assert shown() == whole


def test_training_keeps_the_passages_that_scored_highest_and_the_page_shows_them(here, capsys):
    main(command("--fold", "1", "--loss", "hinge", "--name", "one"))
    fold = here / "runs" / "towns" / "one" / "fold1"
    passages = json.loads((fold / "test.passages.json").read_text())
    several = [(number, of) for by_doc in passages.values() for number, of in by_doc.values()]
    assert several
    assert all(0 <= number < of > 1 for number, of in several)
    main(["report", "runs/towns"])
    page = Page(here / "runs" / "towns" / "report.html")
    assert "scored highest" in page.text
    facts = json.loads((fold / "manifest.json").read_text())
    assert f"{facts['peak_memory'] / 2**30:.2f} GiB" in page.text
    record = json.loads((fold / "log.jsonl").read_text().splitlines()[0])
    assert len(record["steps"]["ndcg"]) == len(record["steps"]["smooth"]) == 2
    assert sum(record["steps"]["ndcg"]) / 2 == pytest.approx(record["ndcg"], abs=1e-4)
    assert record["documents"] == 8 * 4
    assert record["tokens"] > 0 < record["seconds"]


def test_the_best_passages_are_those_of_a_loop(tmp_path):
    import torch
    from accelerate import Accelerator

    from rerank.models.checkpoints import open_cross_encoder
    from rerank.models.memory import TokenBudget
    from tests.support.small_world import make_lists

    queries, texts, lists = make_lists(queries=2, documents=5, longest=150)
    folder = make_encoder("bert", tmp_path / "bert", WORDS, max_positions=48)
    model, tokenizer, max_length = open_cross_encoder(str(folder), "mean", 0)
    inputs_of = make_inputs(tmp_path / "tokens", tokenizer, max_length, queries, texts)
    kept = {}
    score_candidates(model, inputs_of, lists, Accelerator(cpu=True), TokenBudget(200), passages=kept)
    for found in lists:
        for doc_id in found.doc_ids:
            with torch.no_grad():
                scores = model(inputs_of([(found.query_id, doc_id)])).tolist()
            best = (scores.index(max(scores)), len(scores))
            assert kept.get(found.query_id, {}).get(doc_id) == (best if len(scores) > 1 else None)
