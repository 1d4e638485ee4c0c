"""Synthetic queries and documents with lengths like Robust04's; speed does not depend on their words."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rerank.data.tokens import tokenise
from rerank.utils.errors import UserError

CUT = 800
MEDIAN = 500.0
SPREAD = math.log(CUT / MEDIAN) / 0.8416  # 0.8416 is the standard normal's 80 % quantile
QUERY_LENGTHS = (2, 3, 4)
WORDS = 2000


def document_lengths(count: int, rng: np.random.Generator, longest: int | None = None) -> np.ndarray:
    """(count,) lengths in word pieces: lognormal, half over 500 and a fifth over 800, cut at 800.

    With `longest`, longer documents are drawn again instead.
    """
    lengths = np.zeros(0, dtype=np.int64)
    while len(lengths) < count:
        drawn = np.rint(rng.lognormal(math.log(MEDIAN), SPREAD, count)).astype(np.int64).clip(1)
        drawn = drawn.clip(max=CUT) if longest is None else drawn[drawn <= longest]
        lengths = np.concatenate([lengths, drawn])
    return lengths[:count]


def one_piece_words(tokenizer: Any) -> list[str]:
    """About 2,000 lower-case words of a tokenizer's vocabulary, or all, each of which is one token inside a text.

    Raises UserError if there are fewer than ten.
    """
    pieces = (token.lstrip("Ġ▁") for token in sorted(tokenizer.get_vocab()))
    words = [word for word in dict.fromkeys(pieces) if len(word) > 2 and word.isascii() and word.isalpha()]
    words = [word for word in words if word == word.lower()]
    words = words[:: max(1, len(words) // WORDS)]
    once, twice = (tokenise([" ".join([word] * count) for word in ["the", *words]], tokenizer) for count in (2, 3))
    one_token = [
        word for word, two, three in zip(words, once[1:], twice[1:], strict=True) if len(three) == len(two) + 1
    ]
    if len(one_token) < 10:
        raise UserError(
            f"tokenizer {tokenizer.name_or_path}: {len(one_token)} English words are one token, expected 10 or more "
            "to make documents of; use another encoder"
        )
    return one_token


def make_texts(lengths: Sequence[int] | np.ndarray, words: list[str], rng: np.random.Generator) -> list[str]:
    """Texts of random words, `lengths` of them each."""
    return [" ".join(rng.choice(words, size=length)) for length in lengths]


def make_queries(count: int, words: list[str], rng: np.random.Generator) -> list[str]:
    """Queries of two to four words, three on average."""
    return make_texts(rng.choice(QUERY_LENGTHS, size=count), words, rng)
