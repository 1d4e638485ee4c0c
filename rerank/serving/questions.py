"""What a request asks and what it gets, whatever its dialect; and the checks of its fields."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rerank.serving.refusals import Reason, RefusalError

Body = Mapping[str, Any]
"""The JSON object of a request."""


@dataclass(frozen=True)
class Question:
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


def text(body: Body, field: str) -> str:
    """The text of a field that must be there."""
    return _text(_needed(body, field), field)


def texts(body: Body, field: str, objects: bool = False) -> list[str]:
    """The texts of a field that must be there; with `objects`, {"text": "…"} is a text too."""
    values = _needed(body, field)
    if not isinstance(values, list):
        raise RefusalError(Reason.INVALID, f"{field}: expected a list of texts, got {_kind(values)}")
    if not values:
        raise RefusalError(Reason.EMPTY, f"{field}: is empty, expected one text or more")
    return [_document(value, f"{field}[{place}]", objects) for place, value in enumerate(values)]


def text_or_texts(body: Body, field: str) -> list[str]:
    """The texts of a field that is a text or a list of texts."""
    value = _needed(body, field)
    return texts(body, field) if isinstance(value, list) else [_text(value, field)]


def flag(body: Body, field: str, default: bool) -> bool:
    """A truth value; null and a missing field are the default."""
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RefusalError(Reason.INVALID, f"{field}: expected true or false, got {_kind(value)}")
    return value


def count(body: Body, field: str) -> int | None:
    """A whole number from 1 on, or None for null and a missing field."""
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise RefusalError(Reason.INVALID, f"{field}: expected a whole number, got {_kind(value)}")
    if value < 1:
        raise RefusalError(Reason.INVALID, f"{field}: expected 1 or more")
    return value


def check_model(body: Body) -> None:
    """Any name of a model is taken, as there is one model; anything but a text is refused."""
    if body.get("model") is not None:
        _text(body["model"], "model")


def _needed(body: Body, field: str) -> Any:
    if body.get(field) is None:
        raise RefusalError(Reason.INVALID, f"{field}: is missing")
    return body[field]


def _document(value: Any, field: str, objects: bool) -> str:
    if objects and isinstance(value, dict):
        if not isinstance(value.get("text"), str):
            raise RefusalError(Reason.INVALID, f'{field}: expected a text or {{"text": "…"}}')
        return _text(value["text"], field)
    return _text(value, field)


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise RefusalError(Reason.INVALID, f"{field}: expected a text, got {_kind(value)}")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise RefusalError(Reason.INVALID, f"{field}: has half of a surrogate pair, which is no character")
    return value


def _kind(value: Any) -> str:
    kinds = {
        str: "a text",
        bool: "a truth value",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return kinds.get(type(value), "null")
