"""How a document is split into passages, as few as fit, of equal length to within one token, and where these are."""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

OffsetTokenizer = Any
"""A `tokenizers.Tokenizer`, which neither cuts nor pads a text."""


class Splitting(NamedTuple):
    """What the passages of a document share: tokens with the passage before, and the document's first tokens.

    overlap: the tokens that a passage shares with the one before it. title: the number of the document's first tokens,
    its title as a rule, that are put in front of every passage after the first. Numbers below may be arrays.
    """

    overlap: int = 0
    title: int = 0

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Splitting":
        """That of an encoder's settings, or of those that a checkpoint records; a missing one is 0."""
        return cls(settings.get("passage_overlap", 0), settings.get("title_tokens", 0))

    def settings(self) -> dict[str, int]:
        """The settings that are not 0, as a checkpoint records them."""
        both = {"passage_overlap": self.overlap, "title_tokens": self.title}
        return {name: value for name, value in both.items() if value}

    @property
    def repeated(self) -> int:
        """The tokens of a passage after the first that an earlier one has too."""
        return self.overlap + self.title

    def passages(self, length: Any, limit: Any) -> Any:
        """The fewest passages of at most `limit` > `repeated` tokens that a document of `length` tokens fits into."""
        return np.maximum(1, -(-(length - self.repeated) // (limit - self.repeated)))

    def total(self, length: Any, passages: Any) -> Any:
        """The tokens of all passages of a document, with those that are repeated."""
        return length + (passages - 1) * self.repeated

    def span(self, length: Any, passages: Any, number: Any) -> tuple[Any, Any]:
        """Where passage `number` (from 0) begins, after the repeated title, and ends, in tokens of the document."""
        total = self.total(length, passages)
        begins = number * total // passages - (number - 1) * self.repeated - self.overlap
        return np.where(number, begins, 0), (number + 1) * total // passages - number * self.repeated


NOTHING_SHARED = Splitting()
"""The splitting of the paper: every token is in one passage."""


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
    offsets = tokenizer.encode(lead + text, add_special_tokens=False).offsets[:max_doc_tokens]
    begin, end = map(int, splitting.span(len(offsets), of, number))
    if begin == end:
        return 0, 0
    return max(0, offsets[begin][0] - len(lead)), max(0, offsets[end - 1][1] - len(lead))


def equal_passages(text: str, tokenizer: OffsetTokenizer, max_tokens: int) -> list[str]:
    """The text in as few passages of about equal length as have at most `max_tokens` tokens each.

    A passage begins where a word does, unless the word is long. The text itself if it is short enough.
    """
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
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
