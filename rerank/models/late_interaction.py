"""Late interaction: a document's score is the sum over the query's tokens of the largest similarity of its own tokens.

MaxSim: Khattab and Zaharia, "ColBERT", SIGIR 2020. Of a document's vectors only the signs are kept, after a random
rotation, which estimate products with any vector: Gao and Long, "RaBitQ", SIGMOD 2024.
"""

import math
from collections.abc import Sequence

import numpy as np

LEAST_BITS = 384
"""Bits of a vector, at least: vectors of fewer numbers are rotated in a space of so many."""


def rotation_of(dimensions: int) -> np.ndarray:
    """(dimensions, bits) float32: a random rotation of vectors of so many numbers, always the same; bits / 8 is whole.

    Its rows have a length of 1 and are orthogonal, so products of vectors stay as they are.
    """
    bits = -(-max(dimensions, LEAST_BITS) // 8) * 8
    square, upper = np.linalg.qr(np.random.default_rng(0).standard_normal((bits, bits)))
    rotation: np.ndarray = (square * np.sign(np.diag(upper)))[:dimensions].astype(np.float32)
    return rotation


def to_codes(vectors: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """(vectors, bits / 8) uint8: the signs of (vectors, dimensions) after the rotation."""
    return np.packbits(vectors @ rotation > 0, axis=1)


def max_similarities(
    query: np.ndarray, weights: np.ndarray, documents: Sequence[np.ndarray], rotation: np.ndarray
) -> np.ndarray:
    """(documents,) float32: the sum over the query's tokens of weight × the largest similarity of a document's tokens.

    query: (tokens, dimensions) float32 and weights: (tokens,) of the query; documents: the codes of each one's tokens,
    (vectors, bits / 8). A document without tokens, and a query without, gives 0.
    """
    columns, least = _columns(query, rotation)
    scores = np.zeros(len(documents), np.float32)
    for number, codes in enumerate(documents):
        if len(codes):
            scores[number] = weights @ (_products(codes, columns).max(0) - least)
    return scores


def nearest_tokens(query: np.ndarray, codes: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each token of a query the number of the most similar one of a document, and how similar: (tokens,) each.

    `codes` are those of at least one token of the document.
    """
    columns, least = _columns(query, rotation)
    products = _products(codes, columns)
    return products.argmax(0), products.max(0) - least


def _columns(query: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bits, tokens) and (tokens,): a product of bits with the first, less the second, is the similarity."""
    bits = rotation.shape[1]
    rotated = math.sqrt(math.pi / 2 / bits) * (query @ rotation)  # the sign of a number times this is the number's mean
    return np.ascontiguousarray(2 * rotated.T), rotated.sum(1)  # codes are 0 and 1 for -1 and 1


def _products(codes: np.ndarray, columns: np.ndarray) -> np.ndarray:
    products: np.ndarray = np.unpackbits(codes, axis=1).astype(np.float32) @ columns
    return products


def frequency_weights(frequencies: np.ndarray, documents: int) -> np.ndarray:
    """(pieces,) float32: log((documents + 1) / (frequency + 1)) of each word piece, by the documents that have it."""
    weights: np.ndarray = np.log((documents + 1) / (frequencies + 1)).astype(np.float32)
    return weights
