"""Query and document -> packed passages, for every kind of encoder."""

import random
from dataclasses import replace
from itertools import chain, pairwise

import pytest
import torch

from rerank.data import tokens
from rerank.data.ragged import release
from rerank.data.splitting import NOTHING_SHARED, Splitting
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


SHARED = [Splitting(4, 0), Splitting(0, 3), Splitting(4, 3)]
"""Sharings of the tokens that the longest query leaves, 22 or so."""


def by_loop(builder, query_id, doc_id):
    """The passages of a pair as lists of token ids: as few as fit, of equal length to within one token."""
    overlap, title = builder.splitting
    query, tokens = builder.query(query_id), builder.documents[doc_id].tolist()
    room = builder.max_tokens - len(query)
    count = 1
    while -(-(len(tokens) + (count - 1) * (overlap + title)) // count) > room:
        count += 1
    total = len(tokens) + (count - 1) * (overlap + title)
    passages, end = [], 0
    for number in range(count):
        passage = tokens[:title] + tokens[end - overlap : end] if number else []
        while len(passage) < (number + 1) * total // count - number * total // count:
            passage.append(tokens[end])
            end += 1
        passages.append(passage)
    assert end == len(tokens)
    template = builder.template
    return [[*template.prefix, *query, *template.middle, *passage, *template.suffix] for passage in passages]


@pytest.mark.parametrize("splitting", [NOTHING_SHARED, *SHARED])
def test_passages_that_share_tokens_are_those_of_a_loop(encoder, splitting, tmp_path):
    """Whatever the lengths and the pairs that are built together, and when they are put together part by part."""
    rng = random.Random(1)
    texts = TEXTS | make_texts({str(number): rng.randint(0, 200) for number in range(30)})
    built = make_inputs(tmp_path, encoder.tokenizer, encoder.max_length, QUERIES, texts)
    builder = replace(built, splitting=splitting)
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


def test_shared_tokens_that_leave_none_for_others_are_refused(encoder, tmp_path):
    built = make_inputs(tmp_path, encoder.tokenizer, encoder.max_length, QUERIES, TEXTS)
    room = built.max_tokens - built.max_tokens // 2

    def build(overlap, title):
        return type(built).build(
            QUERIES, built.documents, encoder.tokenizer, built.template, encoder.max_length, Splitting(overlap, title)
        )

    assert build(room - 2, 1).sizes([("long", "many")])[0][0] <= encoder.max_length
    with pytest.raises(UserError, match=f"--encoder.passage-overlap {room - 2} and --encoder.title-tokens 2: expected"):
        build(room - 2, 2)
