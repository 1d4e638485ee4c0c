"""Long texts are tokenised in pieces, with the tokens of the whole text."""

import functools
import json
import random
import string
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.data import tokens
from rerank.data.pieces import pieces
from rerank.data.tokens import make_store, tokenise
from tests.support import tiny_decoders
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import KINDS, make_tokenizer

DECODERS = ["qwen3", "llama", "gemma"]

ALPHABET = [
    *(" " * 12),
    *"abzAZ019.,;'-_<[",
    *"  \n\n\t\r\v\x00\x1c\x85\u00a0\u200b\u2003\u2028\u3000",
    *"éßİΣςÅﬁ½²´\u0301\u0308\u0345\u0d4e\u0600\uff9e\ufe0f\u200d",
    *"日本語、。한국กำ😀🏽\U000110bd𝐀",
    "'s", " 's", "[MASK]", "<mask>", " </s>", "▁", "Ġ", "##a", "-- ", "a b c ",
]  # fmt: skip
"""Characters that normalisation joins, drops, widens or lowers, white space of every kind, and special tokens."""


def tokenizer_of(kind):
    return (tiny_decoders.make_tokenizer if kind in DECODERS else make_tokenizer)(kind, WORDS)


def random_text(rng):
    words = [*ALPHABET, *(f" {word}" for word in rng.sample(WORDS, 4)), "x" * 120]
    return "".join(rng.choices(words, k=rng.randint(0, 120)))


@pytest.mark.parametrize("kind", [*KINDS, *DECODERS])
def test_the_tokens_of_the_pieces_are_those_of_the_text(kind):
    tokenizer, rng = tokenizer_of(kind), random.Random(kind)
    source = tokenizer.backend_tokenizer.to_str()
    cut = 0
    for _ in range(400):
        text = random_text(rng)
        parts = list(pieces(text, source, size=rng.randint(1, 30)))
        assert "".join(parts) == text
        assert list(chain.from_iterable(tokenise(parts, tokenizer))) == tokenise([text], tokenizer)[0], repr(text)
        cut += len(parts) > 1
    assert cut > 100


CHINESE, BASE64 = "日本語文字検索。，、", string.ascii_letters + string.digits + "+/="


@pytest.mark.parametrize(
    ("kind", "letters"),
    [(kind, CHINESE) for kind in ("bert", "electra", "mpnet", "roberta", "modernbert", "qwen3")]
    + [(kind, BASE64) for kind in ("bert", "roberta", "qwen3", "gemma")],
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_text_without_spaces_is_cut_too(kind, letters, data):
    tokenizer = cached_tokenizer(kind)
    source = tokenizer.backend_tokenizer.to_str()
    rare = st.text("é\u0301ﬁ😀 \n<[]'▁\u0338；．ａ", max_size=3)
    parts = st.lists(st.one_of(st.text(letters, min_size=1, max_size=20), rare), max_size=20)
    text = "".join(data.draw(parts))
    cut = list(pieces(text, source, size=data.draw(st.integers(1, 20))))
    assert "".join(cut) == text
    assert list(chain.from_iterable(tokenise(cut, tokenizer))) == tokenise([text], tokenizer)[0]
    long = text + "".join(random.Random(text).choices(letters, k=2000))
    cut = list(pieces(long, source, size=20))
    assert max(map(len, cut)) < 1000
    assert list(chain.from_iterable(tokenise(cut, tokenizer))) == tokenise([long], tokenizer)[0]


@functools.cache
def cached_tokenizer(kind):
    return tokenizer_of(kind)


@pytest.mark.parametrize("kind", DECODERS)
def test_no_cut_goes_through_a_token_of_whole_text_or_known_words(kind):
    tokenizer, rng = cached_tokenizer(kind), random.Random(kind)
    source = tokenizer.backend_tokenizer.to_str()
    specials = [token for token in tokenizer.all_special_tokens if token]
    for _ in range(100):
        words = rng.choices([*WORDS, *specials, "?\n", ".\n", " ", "▁", "'s", "12345", "é"], k=30)
        text = rng.choice(["", " "]).join(words)
        parts = list(pieces(text, source, size=rng.randint(1, 15)))
        assert list(chain.from_iterable(tokenise(parts, tokenizer))) == tokenise([text], tokenizer)[0], repr(text)


@pytest.mark.parametrize("kind", [*KINDS, *DECODERS])
def test_a_store_has_the_first_tokens_and_the_length_of_the_whole_text(kind, monkeypatch):
    monkeypatch.setattr(tokens, "pieces", lambda text, tokenizer: pieces(text, tokenizer, size=20))
    monkeypatch.setattr(tokens, "PIECES_PER_CHUNK", 3)
    tokenizer, rng = tokenizer_of(kind), random.Random(kind)
    texts = {f"d{number}": random_text(rng) for number in range(40)} | {"empty": "", "one": "x" * 5000}
    store = make_store(list(texts), texts.values(), tokenizer, 30)
    whole = {doc_id: tokenise([text], tokenizer)[0] for doc_id, text in texts.items()}
    assert {doc_id: store[doc_id].tolist() for doc_id in texts} == {d: ids[:30] for d, ids in whole.items()}
    assert store.lengths.tolist() == [len(ids) for ids in whole.values()]


def test_a_text_without_a_place_to_cut_is_one_piece():
    source = make_tokenizer("bert", WORDS).backend_tokenizer.to_str()
    for text in ("x" * 500, "a! b! " * 100, "a  b\n" * 100, "กำ" * 100, ""):
        assert list(pieces(text, source, size=10)) == [text]


@pytest.mark.parametrize("size", [0, -1])
def test_a_piece_has_a_character_at_least(size):
    with pytest.raises(ValueError, match="size: expected at least 1 character"):
        list(pieces("a b", make_tokenizer("bert", WORDS).backend_tokenizer.to_str(), size=size))


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("normalizer", {"type": "Prepend", "prepend": "▁"}),
        ("normalizer", {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
        ("normalizer", {"type": "Strip", "strip_left": True, "strip_right": True}),
        ("pre_tokenizer", None),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "a b"}, "behavior": "Isolated", "invert": False}),
        ("pre_tokenizer", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}),
        ("added_tokens", [{"content": "New York", "rstrip": False}]),
        ("added_tokens", [{"content": "word", "rstrip": True}]),
        ("model", {"type": "BPE", "dropout": 0.1}),
    ],
)
def test_another_kind_of_tokenizer_gets_the_whole_text(part, change):
    source = json.loads(make_tokenizer("bert", WORDS).backend_tokenizer.to_str())
    assert len(list(pieces("a b c d", json.dumps(source), size=1))) > 1
    assert list(pieces("a b c d", json.dumps({**source, part: change}), size=1)) == ["a b c d"]
    assert list(pieces("a b c d", "", size=1)) == ["a b c d"]


def test_a_document_of_megabytes_is_never_tokenised_at_once(monkeypatch):
    tokenizer, text, sizes = make_tokenizer("bert", WORDS), "amber birch " * 150_000, []

    def recorded(texts, tokenizer):
        sizes.append(sum(map(len, texts)))
        return tokenise(texts, tokenizer)

    monkeypatch.setattr(tokens, "tokenise", recorded)
    store = make_store(["d"], [text], tokenizer, 100)
    assert store.lengths.tolist() == [300_000]
    assert len(store["d"]) == 100
    assert sum(sizes) == len(text)
    assert max(sizes) < 2**20 + 2**17
