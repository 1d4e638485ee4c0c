"""Where a passage of a document stands in its text: what a model read, as characters."""

import itertools
from typing import Any, NamedTuple

from rerank.data.pieces import pieces


class OffsetTokenizer(NamedTuple):
    """A tokenizer of the package tokenizers, which neither cuts nor pads a text, and its JSON."""

    tokenizer: Any
    json: str


def open_offset_tokenizer(json: str) -> OffsetTokenizer:
    """The tokenizer of this JSON, the content of a file tokenizer.json."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return OffsetTokenizer(tokenizer, json)


def passage_span(
    text: str, number: int, of: int, tokenizer: OffsetTokenizer, max_doc_tokens: int, lead: str = ""
) -> tuple[int, int]:
    """Where passage `number` (from 0) of the `of` into which a model read the text begins and ends, in characters.

    Split as in training: equal numbers of tokens, after truncation. `lead` is the part of a template before a document,
    which is tokenised with the text. (0, 0) for a text without tokens.
    """
    offsets = _offsets(lead + text, tokenizer, max_doc_tokens)
    begin, end = list(itertools.pairwise(len(offsets) * place // of for place in range(of + 1)))[number]
    if begin == end:
        return 0, 0
    return max(0, offsets[begin][0] - len(lead)), max(0, offsets[end - 1][1] - len(lead))


def _offsets(text: str, tokenizer: OffsetTokenizer, max_doc_tokens: int) -> list[tuple[int, int]]:
    """Where each of the first tokens of the text begins and ends; of a long text only their pieces are tokenised."""
    offsets: list[tuple[int, int]] = []
    start = 0
    for piece in pieces(text, tokenizer.json):
        found = tokenizer.tokenizer.encode(piece, add_special_tokens=False).offsets
        offsets += [(start + begin, start + end) for begin, end in found]
        start += len(piece)
        if len(offsets) >= max_doc_tokens:
            break
    return offsets[:max_doc_tokens]
