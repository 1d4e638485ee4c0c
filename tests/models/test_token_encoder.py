"""Vectors of tokens: those of transformers alone, or of a model that is trained for late interaction."""

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from torch import nn
from transformers import AutoModel, AutoTokenizer

from rerank.models.bi_encoder import BiEncoder
from rerank.models.token_encoder import TokenEncoder, is_multi_vector, open_multi_vector
from rerank.utils.errors import UserError
from tests.models.test_bi_encoder import write_modules
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

LONG = " ".join(WORDS[number % len(WORDS)] for number in range(10_000))
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture
def folder(tmp_path):
    return make_encoder("bert", tmp_path / "encoder", WORDS, max_positions=24)


@pytest.fixture
def trained(folder, tmp_path):
    """A model that is trained for late interaction, with its own projection, and a mask of one word of documents."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inside = {"module_input_name": "token_embeddings"}
        projection = Dense(32, 16, bias=False, activation_function=nn.Identity(), **inside)
        mask = MultiVectorMask(skiplist_words=[WORDS[0]])
        modules = [Transformer(str(folder)), projection, mask, Normalize(**inside)]
        MultiVectorEncoder(modules=modules, device="cpu").save(str(tmp_path / "trained"), create_model_card=False)
    return str(tmp_path / "trained")


def last_layer(folder, text):
    """Transformers alone: the numbers of the word pieces, and the vectors of all tokens, of length 1."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        vectors = nn.functional.normalize(model(**inputs).last_hidden_state[0], dim=1)
    return inputs["input_ids"][0].tolist(), vectors.numpy()


def test_a_bi_encoder_gives_its_last_layer_without_the_special_tokens_and_the_prompt_of_a_query(folder):
    write_modules(folder, prompts={"query": f"{WORDS[0]} {WORDS[1]} ", "document": ""}, normalise=True)
    encoder = TokenEncoder(BiEncoder.load(str(folder), device="cpu"), is_multi_vector(str(folder)))
    assert not encoder.is_trained
    text = " ".join(WORDS[2:6])
    pieces, vectors = last_layer(folder, f"{WORDS[0]} {WORDS[1]} {text}")
    found, numbers = encoder.query(text)
    np.testing.assert_allclose(found, vectors[3:-1], **CLOSE)
    assert numbers.tolist() == pieces[3:-1] == encoder.pieces([text])[0]
    np.testing.assert_allclose(encoder.document(text), last_layer(folder, text)[1], **CLOSE)
    assert encoder.dimensions == 32
    assert encoder.words(f"{text}!", True) == text.split() + [""] * (len(encoder.query(f"{text}!")[1]) - 4)
    many = " ".join(LONG.split()[:60])  # several passages
    words = encoder.words(many, False)
    assert len(words) == len(encoder.document(many))
    assert [word for word in words if word] == many.split()


def test_a_long_document_has_the_tokens_of_all_its_passages(folder):
    encoder = TokenEncoder(BiEncoder.load(str(folder), device="cpu"), False)
    passages = encoder.encoder.split(LONG)
    first, last = (last_layer(folder, passage)[1] for passage in (passages[0], passages[-1]))
    vectors = encoder.document(LONG)
    assert len(vectors) == 10_000 + 2 * len(passages)
    np.testing.assert_allclose(vectors[: len(first)], first, **CLOSE)
    np.testing.assert_allclose(vectors[-len(last) :], last, **CLOSE)


def test_a_text_without_word_pieces_has_special_tokens_alone(folder):
    encoder = TokenEncoder(BiEncoder.load(str(folder), device="cpu"), False)
    assert [part.shape for part in encoder.query("\u200b")] == [(0, 32), (0,)]
    assert encoder.document("\u200b").shape == (2, 32)


def test_a_model_that_is_trained_for_late_interaction_keeps_its_projection_and_masks(trained):
    assert is_multi_vector(trained)
    encoder = TokenEncoder(open_multi_vector(trained, "cpu", "float32"), True)
    text = " ".join(WORDS[:4])
    model = MultiVectorEncoder(trained, device="cpu", local_files_only=True)
    np.testing.assert_allclose(encoder.query(text)[0], model.encode_query([text], convert_to_numpy=True)[0], **CLOSE)
    (document,) = model.encode_document([text], convert_to_numpy=True)
    assert document.shape == (5, 16)
    np.testing.assert_allclose(encoder.document(text), document, **CLOSE)


def test_a_token_with_nan_is_one_line(folder):
    bi_encoder = BiEncoder.load(str(folder), device="cpu")
    next(bi_encoder.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(UserError, match="gives a token a vector with NaN or infinity"):
        TokenEncoder(bi_encoder, False).document("amber")
