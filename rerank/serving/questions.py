"""What a request asks and what it gets, whatever its dialect."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.special import expit

from rerank.serving.refusals import Reason, RefusalError
from rerank.serving.token_limits import UNLIMITED, TokenLimits


class Question(NamedTuple):
    """(query, document) texts to score, and how the answer shows them.

    sigmoid: scores are mapped to 0 to 1; top_n: the number of results, None for all; shown: the documents as the
    results repeat them, None if they do not; limits: the tokens kept of the texts; never_cut: why a text that is longer
    than the model takes is refused, "" if it is cut; request_id: the client's name of the request.
    """

    pairs: list[tuple[str, str]]
    sigmoid: bool = True
    top_n: int | None = None
    shown: Sequence[Any] | None = None
    limits: TokenLimits = UNLIMITED
    never_cut: str = ""
    request_id: str | None = None


class Scored(NamedTuple):
    """The scores of a question's pairs, in their order: (pairs,) float32, as `Reranker.score` gives them.

    `tokens` are those that the model read, query and special tokens included; `model` is the name of the checkpoint.
    """

    question: Question
    scores: np.ndarray
    tokens: int
    model: str

    def ranked(self) -> list[dict[str, Any]]:
        """{index, relevance_score, document?} of the best `top_n` documents, best first; ties stay in their order."""
        best_first = np.argsort(-self.scores, kind="stable")[: self.question.top_n].tolist()
        shown = self.question.shown
        return [
            {"index": index, "relevance_score": self.shown(index)}
            | ({} if shown is None else {"document": shown[index]})
            for index in best_first
        ]

    def shown(self, index: int) -> float:
        """The score of a pair as the answer gives it."""
        score = float(self.scores[index])
        return float(expit(score)) if self.question.sigmoid else score

    def usage(self) -> dict[str, int]:
        """The tokens as most APIs count them."""
        return {"prompt_tokens": self.tokens, "total_tokens": self.tokens}


class TextObject(msgspec.Struct):
    """A text as an object."""

    text: str


def as_list(name: str, texts: str | list[Any]) -> list[Any]:
    """The texts of a field that may be one text or a list. Raises RefusalError if there are none."""
    if not texts and not isinstance(texts, str):
        raise RefusalError(Reason.EMPTY, f"{name}: is empty, expected one text or more")
    return [texts] if isinstance(texts, str) else texts


def query_and_texts(query: str, texts: list[str], name: str) -> list[tuple[str, str]]:
    """The query with each text of a field; raises RefusalError if there are none."""
    return [(query, text) for text in as_list(name, texts)]
