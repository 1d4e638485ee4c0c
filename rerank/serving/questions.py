"""What a request asks and what it gets, whatever its dialect; and the checks of its fields."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from rerank.serving.refusals import Reason, RefusalError

Body = Mapping[str, Any]
"""The JSON object of a request."""


class Question(NamedTuple):
    """(query, document) texts to score, and how the answer shows them.

    sigmoid: scores are mapped to 0 to 1; top_n: the number of results, None for all; with_texts: results repeat the
    documents; max_doc_tokens: the tokens kept of a document, None for those of the model; may_cut: whether a text that
    is longer than the model takes is cut, or refused.
    """

    pairs: list[tuple[str, str]]
    sigmoid: bool = True
    top_n: int | None = None
    with_texts: bool = False
    max_doc_tokens: int | None = None
    may_cut: bool = True


class Scored(NamedTuple):
    """The scores of a question's pairs, in their order: (pairs,) float32, as `Reranker.score` gives them.

    `tokens` are those that the model read, query and special tokens included; `model` is the name of the checkpoint.
    """

    question: Question
    scores: np.ndarray
    tokens: int
    model: str

    def ranked(self) -> list[tuple[int, float, str]]:
        """(index, shown score, document) of the best `top_n` documents, best first; ties stay in their order."""
        best_first = np.argsort(-self.scores, kind="stable")[: self.question.top_n].tolist()
        return [(index, self.shown(index), self.question.pairs[index][1]) for index in best_first]

    def shown(self, index: int) -> float:
        """The score of a pair as the answer gives it."""
        score = float(self.scores[index])
        return sigmoid(score) if self.question.sigmoid else score


def sigmoid(score: float) -> float:
    """1 / (1 + exp(-score)), without overflow.

    >>> sigmoid(0.0), sigmoid(-1000.0), sigmoid(1000.0)
    (0.5, 0.0, 1.0)
    """
    small = math.exp(-abs(score))
    return 1 / (1 + small) if score >= 0 else small / (1 + small)


class TextObject(msgspec.Struct):
    """A document as an object."""

    text: str


def field(body: Body, name: str, shape: Any) -> Any:
    """The value of a field, of a type such as `str`, `list[str]` or `bool | None`; a missing field is null.

    Raises RefusalError, which says where another type was found.
    """
    try:
        return msgspec.convert(body.get(name), shape)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        raise RefusalError(Reason.INVALID, f"{name}{place.rstrip('`')}: {reason[0].lower()}{reason[1:]}") from None


def text(body: Body, name: str) -> str:
    """The text of a field that must be there."""
    found: str = field(body, name, str)
    return found


def texts(body: Body, name: str, shape: Any = list[str]) -> list[str]:
    """The texts of a field that must be there: one or more; its shape may allow a single text, or TextObjects."""
    found = field(body, name, shape)
    if not found and not isinstance(found, str):
        raise RefusalError(Reason.EMPTY, f"{name}: is empty, expected one text or more")
    values = [found] if isinstance(found, str) else found
    return [value.text if isinstance(value, TextObject) else value for value in values]


Count = Annotated[int, msgspec.Meta(ge=1)]
"""A whole number from 1 on."""
