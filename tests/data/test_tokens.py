"""Tokenised documents: the store on disk, the one in memory, and long texts in pieces."""

import random
from functools import partial
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.data import tokens as tokens_module
from rerank.data.tokens import make_store, open_store, pieces, tokenise
from rerank.utils import resumable
from tests.support import tiny_decoders
from tests.support.small_world import WORDS, make_texts
from tests.support.tiny_encoders import KINDS, make_tokenizer

TEXTS = make_texts({"a": 5, "b": 0, "c": 300})


@pytest.fixture
def tokenizer():
    return make_tokenizer("bert", WORDS)


def opened(folder, tokenizer, texts=TEXTS, max_doc_tokens=100, fingerprint="x"):
    return open_store(
        folder, list(texts), lambda ids: (texts[doc_id] for doc_id in ids), tokenizer, max_doc_tokens, fingerprint
    )


def test_it_gives_every_document_its_tokens(tmp_path, tokenizer):
    store = opened(tmp_path, tokenizer)
    for doc_id, text in TEXTS.items():
        assert store[doc_id].tolist() == tokenizer(text, add_special_tokens=False)["input_ids"][:100]
    assert store.statistics() == {
        "documents": 3,
        "documents_cut": 1,
        "documents_empty": 1,
        "tokens": 305,
        "tokens_cut": 200,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"max_doc_tokens": 50},
        {"fingerprint": "y"},
        {"texts": {"a": "amber"}},
        {"tokenizer": make_tokenizer("bert", WORDS[:10])},
    ],
)
def test_other_documents_tokens_texts_or_tokenizers_make_another_store(tmp_path, tokenizer, change):
    opened(tmp_path, tokenizer)
    opened(tmp_path, **{"tokenizer": tokenizer} | change)
    assert len(list(tmp_path.glob("*/"))) == 2


MANY = make_texts({f"d{number:03}": number % 7 for number in range(300)}, seed=1)


def test_an_interrupted_command_asks_only_for_the_texts_that_are_left(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(tokens_module, "PIECES_PER_CHUNK", 16)
    monkeypatch.setattr(resumable, "SECONDS_BETWEEN_SAVES", 0.0)
    asked = []

    def texts(doc_ids):
        for doc_id in doc_ids:
            asked.append(doc_id)
            if doc_id == "d150" and len(asked) < 200:
                raise KeyboardInterrupt
            yield MANY[doc_id]

    with pytest.raises(KeyboardInterrupt):
        open_store(tmp_path, list(MANY), texts, tokenizer, 5, "x")
    asked.clear()
    asked.extend([""] * 200)
    store = open_store(tmp_path, list(MANY), texts, tokenizer, 5, "x")
    assert "d000" not in asked
    assert asked[-1] == "d299"
    assert list(store.rows) == list(MANY)
    memory = make_store(list(MANY), MANY.values(), tokenizer, 5)
    assert store.sha256() == memory.sha256()
    assert store.statistics() == memory.statistics()


def test_another_number_of_texts_than_of_documents_is_an_error(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="shorter"):
        open_store(tmp_path, list(MANY), lambda ids: ["amber"], tokenizer, 5, "x")


@settings(max_examples=100, deadline=None)
@given(st.text("ab \n", max_size=60), st.integers(1, 20))
def test_pieces_make_up_the_text_and_are_cut_before_white_space_where_there_is_any(text, size):
    parts = list(pieces(text, size))
    assert "".join(parts) == text
    assert all(size <= len(part) <= 2 * size for part in parts[:-1])
    for part, following in pairwise(parts):
        assert (following[0].isspace() and not part[-1].isspace()) or len(part) == 2 * size or len(following) < size


DECODERS = ["qwen3", "llama", "gemma"]
SIZE = 2**12
"""Of a piece, in the place of PIECE."""


@pytest.mark.parametrize("kind", [*KINDS, *DECODERS])
def test_texts_up_to_the_limit_have_exactly_their_tokens_and_longer_ones_those_of_their_pieces(kind, monkeypatch):
    monkeypatch.setattr(tokens_module, "PIECES_PER_CHUNK", 3)
    monkeypatch.setattr(tokens_module, "pieces", partial(pieces, size=SIZE))
    tokenizer = (tiny_decoders.make_tokenizer if kind in DECODERS else make_tokenizer)(kind, WORDS)
    words = [*WORDS, ",", ".", "\n", "é", "日本", "x" * 30, "[MASK]", "</s>"]
    text = " ".join(random.Random(kind).choices(words, k=SIZE // 2))
    texts = {"empty": "", "short": text[:500], "at the limit": text[:SIZE], "blob": "ab" * SIZE, "long": text * 2}
    whole = {doc_id: tokenise([text], tokenizer)[0] for doc_id, text in texts.items()}
    store = make_store(list(texts), texts.values(), tokenizer, 1000)
    assert {doc_id: store[doc_id].tolist() for doc_id in texts} == {d: ids[:1000] for d, ids in whole.items()}
    assert store.lengths[:3].tolist() == [len(whole[doc_id]) for doc_id in list(texts)[:3]]
    parts = [len(list(chain.from_iterable(tokenise(list(pieces(text, SIZE)), tokenizer)))) for text in texts.values()]
    assert store.lengths.tolist() == parts
    assert store.lengths.tolist() == pytest.approx([len(ids) for ids in whole.values()], rel=0.001, abs=8)


@pytest.mark.parametrize("text", ["amber birch " * 150_000, "amber" * 300_000], ids=["words", "no white space"])
def test_a_document_of_megabytes_is_never_tokenised_at_once(text, monkeypatch, tokenizer):
    sizes = []

    def recorded(texts, tokenizer):
        sizes.append(sum(map(len, texts)))
        return tokenise(texts, tokenizer)

    monkeypatch.setattr(tokens_module, "tokenise", recorded)
    store = make_store(["d"], [text], tokenizer, 10)
    assert len(store["d"]) == 10 if " " in text else len(store["d"])
    assert sum(sizes) == len(text)
    assert max(sizes) < 2**20 + 2**17
