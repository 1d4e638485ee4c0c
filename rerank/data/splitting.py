"""Cuts documents into passages, of equal length or overlapping, and finds their positions in the text."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rerank.utils.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Number = TypeVar("Number", int, np.ndarray)


@dataclass(frozen=True)
class Cut:
    """How a document is cut into passages.

    tokens: tokens of a passage; 0: as few passages as fit, of equal length to within one token (MacAvaney et al. 2019,
        CEDR, which the paper follows).
    overlap: tokens that a passage shares with the next one, fewer than `tokens` (Dai and Callan 2019, MaxP).

    >>> cut = Cut(tokens=4, overlap=1)
    >>> passages = cut.count(np.array([9]), np.array([4]))
    >>> [cut.bounds(9, 3, number) for number in range(*passages)]
    [(0, 4), (3, 7), (6, 9)]
    """

    tokens: int = 0
    overlap: int = 0

    def __post_init__(self) -> None:
        if self.overlap and self.overlap >= self.tokens:
            raise UserError(
                f"--encoder.passage-overlap {self.overlap}: expected less than --encoder.passage-tokens, which is "
                f"{self.tokens}"
            )

    def count(self, lengths: np.ndarray, limits: np.ndarray) -> np.ndarray:
        """The passages of documents of `lengths` tokens; equal ones have at most `limits` tokens."""
        if self.tokens:
            step = self.tokens - self.overlap
            return 1 + -(-(lengths - self.tokens).clip(min=0) // step)
        counts: np.ndarray = np.maximum(1, -(-lengths // limits))
        return counts

    def bounds(self, length: Number, passages: Number, number: Number) -> tuple[Number, Number]:
        """The first token of passage `number` (from 0) and the token after its last one; integers or arrays."""
        if self.tokens:
            begin = number * (self.tokens - self.overlap)  # the end is min(begin + tokens, length), also of arrays
            return begin, length - (length - begin - self.tokens) * (length - begin > self.tokens)
        return number * length // passages, (number + 1) * length // passages

    def longest(self, lengths: np.ndarray, passages: np.ndarray) -> np.ndarray:
        """The tokens of the longest passage of each document."""
        longest: np.ndarray = lengths.clip(max=self.tokens) if self.tokens else -(-lengths // passages)
        return longest


EVEN = Cut()


def open_offset_tokenizer(json: str) -> "Tokenizer":
    """The tokenizer of the content of a tokenizer.json, without truncation and padding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def passage_span(
    text: str,
    place: tuple[int, int],
    tokenizer: "Tokenizer",
    max_doc_tokens: int,
    lead: str = "",
    cut: Cut = EVEN,
) -> tuple[int, int]:
    """Begin and end, in characters of the text, of a passage; `place` is its number, from 0, and how many there are.

    The text is cut as in training, after truncation. `lead` is the text of a template before a document, which is
    tokenised with the text. A text without tokens gives (0, 0).
    """
    offsets = tokenizer.encode(lead + text, add_special_tokens=False).offsets[:max_doc_tokens]
    number, passages = place
    begin, end = cut.bounds(len(offsets), passages, number)
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
