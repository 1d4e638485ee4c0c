"""Splits a document into as few passages as fit, of equal length to within one token, and finds their positions."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Number = TypeVar("Number", int, np.ndarray)


def count_passages(lengths: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The fewest passages of at most `limits` tokens for documents of `lengths` tokens."""
    counts: np.ndarray = np.maximum(1, -(-lengths // limits))
    return counts


def passage_bounds(length: Number, passages: Number, number: Number) -> tuple[Number, Number]:
    """The first token of passage `number` (from 0) and the token after its last one; integers or arrays."""
    return number * length // passages, (number + 1) * length // passages


def open_offset_tokenizer(json: str) -> "Tokenizer":
    """The tokenizer of the content of a tokenizer.json, without truncation and padding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def passage_span(
    text: str, number: int, passages: int, tokenizer: "Tokenizer", max_doc_tokens: int, lead: str = ""
) -> tuple[int, int]:
    """Begin and end, in characters of the text, of passage `number` (from 0) of `passages`.

    The text is split as in training: into equal numbers of tokens, after truncation. `lead` is the text of a template
    before a document, which is tokenised with the text. A text without tokens gives (0, 0).
    """
    offsets = tokenizer.encode(lead + text, add_special_tokens=False).offsets[:max_doc_tokens]
    begin, end = passage_bounds(len(offsets), passages, number)
    if begin == end:
        return 0, 0
    return max(0, offsets[begin][0] - len(lead)), max(0, offsets[end - 1][1] - len(lead))


def equal_passages(texts: Sequence[str], tokenizer: "Tokenizer", max_tokens: int) -> list[list[str]]:
    """Splits each text into as few passages as fit, of about equal length, with at most `max_tokens` tokens each.

    A passage begins at the start of a word, unless the word is long. A short text is one passage. The tokenizer uses
    all cores.
    """
    found = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [_split_equally(text, tokens.offsets, max_tokens) for text, tokens in zip(texts, found, strict=True)]


def _split_equally(text: str, offsets: list[tuple[int, int]], max_tokens: int) -> list[str]:
    if len(offsets) <= max_tokens:
        return [text]
    back = max(1, max_tokens // 32)  # tokens that a passage may gain at its start, and again when tokenised separately
    passages = -(-len(offsets) // max(1, max_tokens - 2 * back))
    bounds = [_word_start(text, offsets, len(offsets) * place // passages, back) for place in range(passages)]
    starts = [0, *(offsets[bound][0] for bound in bounds[1:]), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(starts)]


def _word_start(text: str, offsets: list[tuple[int, int]], token: int, back: int) -> int:
    """The nearest token, at most `back` before `token`, that begins after white space; `token` if there is none."""
    for place in range(token, max(0, token - back), -1):
        if offsets[place][0] > offsets[place - 1][1] or text[offsets[place][0]].isspace():
            return place
    return token
