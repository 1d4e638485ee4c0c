"""Tokenised documents: the store on disk and the one in memory."""

import pytest

from rerank.data import tokens as tokens_module
from rerank.data.tokens import Tokenisation, make_store, open_token_store
from tests.support.small_world import WORDS, make_texts
from tests.support.tiny_encoders import make_tokenizer

TEXTS = make_texts({"a": 5, "b": 0, "c": 300})


@pytest.fixture
def tokenizer():
    return make_tokenizer("bert", WORDS)


def opened(folder, tokenizer, texts=TEXTS, max_doc_tokens=100, fingerprint="x"):
    tokenisation = Tokenisation(tokenizer, max_doc_tokens)
    return open_token_store(
        folder, list(texts), lambda ids: (texts[doc_id] for doc_id in ids), tokenisation, fingerprint
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
    monkeypatch.setattr(tokens_module, "TEXTS_PER_CHUNK", 16)
    asked = []

    def texts(doc_ids):
        for doc_id in doc_ids:
            asked.append(doc_id)
            if doc_id == "d150" and len(asked) < 200:
                raise KeyboardInterrupt
            yield MANY[doc_id]

    with pytest.raises(KeyboardInterrupt):
        open_token_store(tmp_path, list(MANY), texts, Tokenisation(tokenizer, 5), "x")
    asked.clear()
    asked.extend([""] * 200)
    store = open_token_store(tmp_path, list(MANY), texts, Tokenisation(tokenizer, 5), "x")
    assert "d000" not in asked
    assert asked[-1] == "d299"
    assert list(store.rows) == list(MANY)
    memory = make_store(list(MANY), MANY.values(), Tokenisation(tokenizer, 5))
    assert store.sha256() == memory.sha256()
    assert store.statistics() == memory.statistics()


def test_another_number_of_texts_than_of_documents_is_an_error(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="shorter"):
        open_token_store(tmp_path, list(MANY), lambda ids: ["amber"], Tokenisation(tokenizer, 5), "x")
