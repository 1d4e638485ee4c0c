"""Where a passage of a document stands in its text: what a model read, as characters."""

import itertools
import sys
from typing import Any

from rerank.data.splitting import NOTHING_SHARED, Splitting
from rerank.data.tokens import pieces

OffsetTokenizer = Any
"""A `tokenizers.Tokenizer`, which neither cuts nor pads a text."""


def open_offset_tokenizer(json: str) -> OffsetTokenizer:
    """The tokenizer of this JSON, the content of a file tokenizer.json."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def passage_span(
    text: str,
    number: int,
    of: int,
    tokenizer: OffsetTokenizer,
    max_doc_tokens: int,
    splitting: Splitting = NOTHING_SHARED,
    lead: str = "",
) -> tuple[int, int]:
    """Where passage `number` (from 0) of the `of` into which a model read the text begins and ends, in characters.

    Split as in training: equal numbers of tokens, after truncation. `lead` is the part of a template before a document,
    which is tokenised with the text. A repeated title is not in the span. (0, 0) for a text without tokens.
    """
    offsets = _offsets(lead + text, tokenizer, max_doc_tokens)
    begin, end = map(int, splitting.span(len(offsets), of, number))
    if begin == end:
        return 0, 0
    return max(0, offsets[begin][0] - len(lead)), max(0, offsets[end - 1][1] - len(lead))


def equal_passages(text: str, tokenizer: OffsetTokenizer, max_tokens: int) -> list[str]:
    """The text in as few passages of about equal length as have at most `max_tokens` tokens each.

    A passage begins where a word does, unless the word is long. The text itself if it is short enough.
    """
    offsets = _offsets(text, tokenizer, sys.maxsize)
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


def _offsets(text: str, tokenizer: OffsetTokenizer, max_doc_tokens: int) -> list[tuple[int, int]]:
    """Where each of the first tokens of a text begins and ends. Of a long text, only the first pieces are tokenised."""
    offsets: list[tuple[int, int]] = []
    start = 0
    for piece in pieces(text):
        found = tokenizer.encode(piece, add_special_tokens=False).offsets
        offsets += [(start + begin, start + end) for begin, end in found]
        start += len(piece)
        if len(offsets) >= max_doc_tokens:
            break
    return offsets[:max_doc_tokens]
