"""How a document is split into passages, as few as fit, of equal length to within one token, and where these are."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

OffsetTokenizer = Any  # a tokenizers.Tokenizer, which neither cuts nor pads a text


def count_passages(length: Any, limit: Any) -> Any:
    """The fewest passages of at most `limit` tokens that a document of `length` tokens fits into; numbers or arrays."""
    return np.maximum(1, -(-length // limit))


def passage_bounds(length: Any, passages: Any, number: Any) -> tuple[Any, Any]:
    """Where passage `number` (from 0) begins and ends, in tokens of the document; numbers or arrays."""
    return number * length // passages, (number + 1) * length // passages


def open_offset_tokenizer(json: str) -> OffsetTokenizer:
    """The tokenizer of this JSON, the content of a file tokenizer.json."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def passage_span(
    text: str, number: int, of: int, tokenizer: OffsetTokenizer, max_doc_tokens: int, lead: str = ""
) -> tuple[int, int]:
    """Where passage `number` (from 0) of the `of` into which a model read the text begins and ends, in characters.

    Split as in training: equal numbers of tokens, after truncation. `lead` is the part of a template before a document,
    which is tokenised with the text. (0, 0) for a text without tokens.
    """
    offsets = tokenizer.encode(lead + text, add_special_tokens=False).offsets[:max_doc_tokens]
    begin, end = passage_bounds(len(offsets), of, number)
    if begin == end:
        return 0, 0
    return max(0, offsets[begin][0] - len(lead)), max(0, offsets[end - 1][1] - len(lead))


def equal_passages(texts: Sequence[str], tokenizer: OffsetTokenizer, max_tokens: int) -> list[list[str]]:
    """Each text in as few passages of about equal length as have at most `max_tokens` tokens each.

    A passage begins where a word does, unless the word is long. The text itself if it is short enough. The tokenizer
    uses all cores.
    """
    found = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [_equal_parts(text, tokens.offsets, max_tokens) for text, tokens in zip(texts, found, strict=True)]


def _equal_parts(text: str, offsets: list[tuple[int, int]], max_tokens: int) -> list[str]:
    if len(offsets) <= max_tokens:
        return [text]
    back = max(1, max_tokens // 32)  # tokens by which a passage may grow at its begin, and again when it is tokenised
    of = -(-len(offsets) // max(1, max_tokens - 2 * back))
    bounds = [_word_start(text, offsets, len(offsets) * place // of, back) for place in range(of)]
    starts = [0, *(offsets[bound][0] for bound in bounds[1:]), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(starts)]


def _word_start(text: str, offsets: list[tuple[int, int]], token: int, back: int) -> int:
    """The token at most `back` before this one that begins after white space; this one if there is none."""
    for place in range(token, max(0, token - back), -1):
        if offsets[place][0] > offsets[place - 1][1] or text[offsets[place][0]].isspace():
            return place
    return token
