"""Query and document -> packed passages, for every kind of encoder."""

import random
from dataclasses import replace
from itertools import chain, pairwise

import pytest
import torch

from rerank.data import tokens
from rerank.data.mapped import release
from rerank.data.splitting import EVEN, Cut
from rerank.models.encoder import load_encoder
from rerank.utils.errors import UserError
from tests.support.small_world import WORDS, make_inputs, make_texts
from tests.support.tiny_encoders import make_encoder

QUERIES = {"q": "amber birch", "long": " ".join(WORDS * 2)}
TEXTS = make_texts({"empty": 0, "one": 1, "fits": 20, "two": 40, "many": 130})


@pytest.fixture(scope="module", params=["bert", "roberta", "deberta-v2"])
def encoder(request, tmp_path_factory):
    return load_encoder(
        str(make_encoder(request.param, tmp_path_factory.mktemp(request.param), WORDS, max_positions=48))
    )


def test_a_long_query_takes_half_of_the_room_and_is_counted(encoder, tmp_path):
    inputs_of = make_inputs(tmp_path, encoder.tokenizer, encoder.max_length, QUERIES, TEXTS)
    words = encoder.tokenizer(QUERIES["q"], add_special_tokens=False)["input_ids"]
    assert list(inputs_of.query("q")) == words
    assert inputs_of.truncated_queries() == 1
    assert len(inputs_of.query("long")) == inputs_of.max_tokens // 2
    assert inputs_of.sizes([("long", "many")])[0][0] <= encoder.max_length


def test_the_tokens_of_earlier_batches_are_let_go(encoder, tmp_path, monkeypatch):
    """Where there are many of them: they are read again, and are the same."""
    inputs_of = make_inputs(tmp_path, encoder.tokenizer, encoder.max_length, QUERIES, TEXTS)
    pairs, released = [("q", doc_id) for doc_id in TEXTS], []

    def note(values):
        release(values)
        released.append(values)

    before = inputs_of(pairs)
    monkeypatch.setattr(tokens, "release", note)
    inputs_of(pairs)
    assert released == []
    monkeypatch.setattr(tokens, "BYTES_KEPT", 0)
    again = inputs_of(pairs)
    assert released[0] is inputs_of.documents.tokens
    assert torch.equal(again.input_ids, before.input_ids)


def by_loop(builder, query_id, doc_id):
    """The passages of a pair as lists of token ids: as few equal ones as fit, or of a fixed length with an overlap."""
    query, tokens = builder.query(query_id), builder.documents[doc_id].tolist()
    room = builder.max_tokens - len(query)
    if size := builder.cut.tokens:
        passages = [tokens[:size]]
        while len(passages[-1]) == size and len(tokens) > (
            end := size + len(passages[1:]) * (size - builder.cut.overlap)
        ):
            begin = end - builder.cut.overlap
            passages.append(tokens[begin : begin + size])
    else:
        count = 1
        while -(-len(tokens) // count) > room:
            count += 1
        bounds = pairwise(number * len(tokens) // count for number in range(count + 1))
        passages = [tokens[begin:end] for begin, end in bounds]
    template = builder.template
    return [[*template.prefix, *query, *template.middle, *passage, *template.suffix] for passage in passages]


def test_overlapping_passages_leave_room_for_a_query(encoder, tmp_path):
    builder = make_inputs(tmp_path, encoder.tokenizer, encoder.max_length, QUERIES, TEXTS, cut=Cut(30, 10))
    assert len(builder.query("long")) == builder.max_tokens - 30 < len(builder.queries["long"])
    with pytest.raises(
        UserError, match=r"--encoder.passage-tokens 48: the encoder takes \d+ tokens of query and passage"
    ):
        make_inputs(tmp_path, encoder.tokenizer, encoder.max_length, QUERIES, TEXTS, cut=Cut(48))
    with pytest.raises(UserError, match=r"--encoder.passage-overlap 9: expected less than --encoder.passage-tokens"):
        Cut(9, 9)


@pytest.mark.parametrize("cut", [EVEN, Cut(12, 5), Cut(20), Cut(30, 29)], ids=str)
def test_passages_are_those_of_a_loop(encoder, tmp_path, cut):
    """Whatever the lengths and the pairs that are built together, and when they are put together part by part."""
    rng = random.Random(1)
    texts = TEXTS | make_texts({str(number): rng.randint(0, 200) for number in range(30)})
    builder = make_inputs(tmp_path, encoder.tokenizer, encoder.max_length, QUERIES, texts, cut=cut)
    by_parts = replace(builder, template=replace(builder.template, after_query=lambda tokens: None))
    pairs = [(query_id, doc_id) for doc_id in texts for query_id in QUERIES]
    rng.shuffle(pairs)
    packed, several = builder(pairs), 0
    ids, offsets = packed.input_ids.tolist(), packed.offsets.tolist()
    passages = [ids[begin:end] for begin, end in pairwise(offsets)]
    longest, totals = builder.sizes(pairs)
    for number, pair in enumerate(pairs):
        expected = by_loop(builder, *pair)
        assert [passages[p] for p in (packed.documents == number).nonzero()[:, 0]] == expected
        assert max(map(len, expected)) == longest[number] <= encoder.max_length
        assert sum(map(len, expected)) == totals[number]
        assert builder([pair]).input_ids.tolist() == list(chain(*expected))
        several += len(expected) > 2
    assert several > 20
    for found, other in zip(packed, by_parts(pairs), strict=True):
        assert found is other is None or torch.equal(found, other)
