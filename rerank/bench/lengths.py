"""Synthetic queries and documents as long as Robust04's: what they say does not matter to how fast they are scored."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rerank.errors import UserError

CUT = 800
MEDIAN = 500.0
SPREAD = math.log(CUT / MEDIAN) / 0.8416  # 0.8416 is the standard normal's 80 % quantile
QUERY_LENGTHS = (2, 3, 4)
WORDS = 2000


def document_lengths(count: int, rng: np.random.Generator, longest: int | None = None) -> np.ndarray:
    """(count,) lengths in word pieces: lognormal, half of them over 500 and a fifth over 800, cut at 800.

    With `longest`, those of the documents that are not longer (drawn again until they are not).
    """
    lengths = np.zeros(0, dtype=np.int64)
    while len(lengths) < count:
        drawn = np.rint(rng.lognormal(math.log(MEDIAN), SPREAD, count)).astype(np.int64).clip(1)
        drawn = drawn.clip(max=CUT) if longest is None else drawn[drawn <= longest]
        lengths = np.concatenate([lengths, drawn])
    return lengths[:count]


def one_piece_words(tokenizer: Any) -> list[str]:
    """Up to 2,000 lower-case words of a tokenizer's vocabulary, each one token inside a text.

    Raises UserError where it has fewer than ten.
    """
    pieces = (token.lstrip("Ġ▁") for token in sorted(tokenizer.get_vocab()))
    words = [word for word in dict.fromkeys(pieces) if len(word) > 2 and word.isascii() and word.isalpha()]
    words = [word for word in words if word == word.lower()]
    before, whole = (
        tokenizer([f"{words[0]}{f' {word}' * twice}" for word in words], add_special_tokens=False)["input_ids"]
        for twice in (1, 2)
    )
    found = [word for word, once, two in zip(words, before, whole, strict=True) if len(two) == len(once) + 1]
    if len(found) < 10:
        raise UserError(
            f"tokenizer {tokenizer.name_or_path}: {len(found)} English words that are one token, expected 10 or more "
            "to make documents of; use another encoder"
        )
    return found[:: max(1, len(found) // WORDS)][:WORDS]


def make_texts(lengths: Sequence[int] | np.ndarray, words: list[str], rng: np.random.Generator) -> list[str]:
    """Texts of random words, `lengths` of them each."""
    return [" ".join(rng.choice(words, size=length)) for length in lengths]


def make_queries(count: int, words: list[str], rng: np.random.Generator) -> list[str]:
    """Queries of two to four words, three on average."""
    return make_texts(rng.choice(QUERY_LENGTHS, size=count), words, rng)
