"""MaxSim against a double loop in float64, and against the definition of sentence-transformers."""

import numpy as np
import pytest
from sentence_transformers.util.similarity import maxsim

from rerank.models.late_interaction import (
    frequency_weights,
    max_similarities,
    nearest_tokens,
    rotation_of,
    to_codes,
)

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
    np.testing.assert_allclose(found, maxsim([query], vectors)[0].numpy(), rtol=1e-5)


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


def test_a_piece_that_all_documents_have_has_no_weight():
    weights = frequency_weights(np.array([0, 1, 9]), 9)
    np.testing.assert_allclose(weights, np.log([10, 5, 1]), rtol=1e-6)
