"""MaxSim against a double loop in float64; vectors of tokens: those of transformers alone, or of a trained model."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.util.similarity import maxsim
from torch import nn
from transformers import AutoModel, AutoTokenizer

from rerank.models.bi_encoder import BiEncoder
from rerank.models.late_interaction import (
    TokenEncoder,
    groups_of_tokens,
    is_multi_vector,
    max_similarities,
    nearest_tokens,
    open_multi_vector,
    rotation_of,
    to_codes,
)
from rerank.models.model_files import model_files
from rerank.utils.errors import UserError
from rerank.utils.inside import copy_files
from tests.models.tiny import write_modules
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

TOKENS = (3, 1, 0, 40, 10_000)
"""Tokens of the documents."""


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def example(dimensions=32, tokens=7, seed=0):
    """The vectors and weights of a query, and the codes of documents."""
    rng = np.random.default_rng(seed)
    query = unit(rng.standard_normal((tokens, dimensions))).astype(np.float32) if tokens else np.zeros((0, dimensions))
    rotation = rotation_of(dimensions)
    documents = [rng.integers(0, 256, (count, rotation.shape[1] // 8), np.uint8) for count in TOKENS]
    return query.astype(np.float32), rng.random(tokens), documents, rotation


def estimates(codes, rotation):
    """(vectors, dimensions) float64: vectors whose products with any other are those of the codes."""
    signs = 2.0 * np.unpackbits(codes, axis=1) - 1
    return np.sqrt(np.pi / 2 / signs.shape[1]) * signs @ rotation.astype(np.float64).T


@pytest.mark.parametrize(("dimensions", "tokens"), [(5, 7), (32, 7), (32, 0), (384, 7), (390, 7)])
def test_scores_are_those_of_a_double_loop(dimensions, tokens):
    query, weights, documents, rotation = example(dimensions, tokens)
    expected = []
    for codes in documents:
        vectors, score = estimates(codes, rotation), 0.0
        for number, (token, weight) in enumerate(zip(query.astype(np.float64), weights, strict=True)):
            largest = 0.0 if not len(vectors) else -np.inf
            for vector in vectors:
                largest = max(largest, float(token @ vector))
            score += weight * largest
            if len(vectors):
                place, similarity = (found[number] for found in nearest_tokens(query, codes, rotation))
                assert [vectors[place] @ token, similarity] == pytest.approx([largest] * 2, abs=1e-5)
        expected.append(score)
    found = max_similarities(query, weights, documents, rotation)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_scores_are_those_of_sentence_transformers():
    query, _, documents, rotation = example()
    with_tokens = [codes for codes in documents if len(codes)]
    vectors = [estimates(codes, rotation).astype(np.float32) for codes in with_tokens]
    found = max_similarities(query, np.ones(len(query)), with_tokens, rotation)
    np.testing.assert_allclose(found, maxsim([query], vectors)[0].numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 7, 24, 60, 700])
def test_groups_of_tokens_are_those_of_a_loop_over_spherical_k_means(tokens):
    rng, rotation = np.random.default_rng(tokens), rotation_of(32)
    codes, weights = to_codes(rng.standard_normal((tokens, 32)).astype(np.float32), rotation), rng.random(tokens)
    vectors = unit(estimates(codes, rotation))
    count = min(24, tokens)
    means = [vectors[round(number * (tokens - 1) / max(1, count - 1))] for number in range(count)]
    for _ in range(10):
        groups: list[list[int]] = [[] for _ in means]
        for token, vector in enumerate(vectors):
            groups[max(range(count), key=lambda group: vector @ means[group])].append(token)
        means = [unit(vectors[of].sum(0)) if of else mean for of, mean in zip(groups, means, strict=True)]
    of_groups = [weights[of].mean() if of else 0 for of in groups]
    heaviest = sorted(range(count), key=lambda group: -of_groups[group])[:10]
    found, found_weights = groups_of_tokens(codes, weights, rotation)
    np.testing.assert_allclose(found, [means[group] for group in heaviest], atol=1e-5)
    np.testing.assert_allclose(found_weights, [of_groups[group] for group in heaviest], rtol=1e-5)
    assert [len(part) for part in groups_of_tokens(codes[:0], weights[:0], rotation)] == [0, 0]


@pytest.mark.parametrize("dimensions", [5, 128, 384])
def test_a_rotation_keeps_products_and_signs_estimate_them(dimensions):
    rotation, rng = rotation_of(dimensions), np.random.default_rng(1)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(dimensions), atol=1e-5)
    np.testing.assert_array_equal(rotation, rotation_of(dimensions))
    vectors = unit(rng.standard_normal((2000, dimensions))).astype(np.float32)
    products = vectors @ vectors[0]
    errors = estimates(to_codes(vectors, rotation), rotation) @ vectors[0] - products
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 0.06  # about sqrt(π / 2 - 1) / sqrt(384)


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
    special, *others = encoder.document_pieces(text).tolist()
    assert (special, others) == (-1, [*encoder.pieces([text])[0], -1])
    words = encoder.words(many, False)
    assert np.flatnonzero(encoder.document_pieces(many) >= 0).tolist() == [n for n, word in enumerate(words) if word]
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


def test_a_copy_of_the_files_that_are_read_keeps_the_tokenizer_and_gives_the_same_scores(trained, folder, tmp_path):
    """As in a portable pipeline."""
    texts = [" ".join(WORDS[:6]), " ".join(LONG.split()[:60])]
    for name, is_trained in ((trained, True), (str(folder), False)):
        copied = tmp_path / f"copy-{is_trained}"
        copy_files(Path(name), copied, model_files(Path(name)))
        found = []
        for place in (name, str(copied)):
            opened = open_multi_vector(place, "cpu", "float32") if is_trained else BiEncoder.load(place, device="cpu")
            encoder = TokenEncoder(opened, is_multi_vector(place))
            assert encoder.is_trained == is_trained
            vectors, pieces = encoder.query(texts[0])
            rotation = rotation_of(encoder.dimensions)
            codes = [to_codes(encoder.document(text), rotation) for text in texts]
            scores = max_similarities(vectors, np.ones(len(pieces), np.float32), codes, rotation)
            found.append((pieces.tolist(), encoder.pieces(texts), encoder.words(texts[0], True), scores.tolist()))
        assert found[0] == found[1]
        names = {"tokenizer.json", "tokenizer_config.json"}
        assert all((copied / one).read_bytes() == (Path(name) / one).read_bytes() for one in names)


def test_threads_get_the_tokens_and_vectors_of_one_thread(folder):
    """Its tokenizers are its own: the length at which one call cuts changes no other call."""
    opened = BiEncoder.load(str(folder), device="cpu")
    texts = [" ".join(LONG.split()[: 10 * number]) for number in range(1, 5)]

    def answers(encoder, text):
        return encoder.pieces([text]), encoder.document_pieces(text).tolist(), encoder.document(text).tolist()

    expected = [answers(TokenEncoder(opened, False), text) for text in texts]
    encoder = TokenEncoder(BiEncoder.load(str(folder), device="cpu"), False)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda number: answers(encoder, texts[number % 4]), range(16))) == expected * 4


def test_a_token_with_nan_is_one_line(folder):
    bi_encoder = BiEncoder.load(str(folder), device="cpu")
    next(bi_encoder.model[0].auto_model.parameters()).data.fill_(float("nan"))
    with pytest.raises(UserError, match="gives a token a vector with NaN or infinity"):
        TokenEncoder(bi_encoder, False).document("amber")
