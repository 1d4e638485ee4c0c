"""The passage of a document that scored highest, and its text: what the model read is what the reader sees."""

from itertools import pairwise

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoTokenizer

from rerank.data.splitting import EVEN, Cut, open_offset_tokenizer, passage_span
from rerank.models.checkpoints import open_cross_encoder
from rerank.models.memory import TokenBudget
from rerank.models.scoring import chunk_by_length, pairs_of, score_chunks
from tests.support.small_world import WORDS, make_inputs, make_lists, make_texts
from tests.support.tiny_encoders import KINDS, make_encoder


@pytest.mark.parametrize("cut", [EVEN, Cut(20, 6)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_passage_is_the_text_of_the_tokens_that_the_model_read(tmp_path, kind, cut):
    folder = make_encoder(kind, tmp_path / kind, WORDS, max_positions=48)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    offsets = open_offset_tokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"))
    texts = make_texts({"long": 200, "short": 5, "empty": 0})
    inputs_of = make_inputs(tmp_path / "tokens", tokenizer, 48, {"q": "amber birch"}, texts, 100, cut)
    template = inputs_of.template
    before = len(template.prefix) + len(inputs_of.query("q")) + len(template.middle)
    for doc_id, text in texts.items():
        packed = inputs_of([("q", doc_id)])
        bounds = list(pairwise(packed.offsets.tolist()))
        for number, (begin, end) in enumerate(bounds):
            read = tokenizer.decode(packed.input_ids[begin + before : end - len(template.suffix)]).strip()
            span = passage_span(text, (number, len(bounds)), offsets, 100, cut=cut)
            assert text[slice(*span)].split() == read.split()


def test_the_best_passages_are_those_of_a_loop(tmp_path):
    queries, texts, lists = make_lists(queries=2, documents=5, longest=150)
    folder = make_encoder("bert", tmp_path / "bert", WORDS, max_positions=48)
    model = open_cross_encoder(str(folder), "mean", 0)
    inputs_of = make_inputs(tmp_path / "tokens", model.tokenizer, model.max_length, queries, texts)
    cpu, budget = Accelerator(cpu=True), TokenBudget(200)
    chunks = chunk_by_length(pairs_of(lists), inputs_of, budget.tokens)
    for chunk, found in score_chunks(model, inputs_of, chunks, cpu.device, cpu.autocast, budget):
        for pair, best in zip(chunk, found.best.tolist(), strict=True):
            with torch.no_grad():
                scores = model(inputs_of([pair])).tolist()
            assert best == [scores.index(max(scores)), len(scores)]
