"""What a `Reranker` takes and gives: texts as tokens, scores, and rankings."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rerank.batches.passages import PassageBuilder
from rerank.data.candidates import standardised


class Ranked(NamedTuple):
    """A document of a ranking: its index in the list that was ranked, its score and its text."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    score: float
    text: str


class BestPassage(NamedTuple):
    """A document of a ranking and its passage with the highest score.

    The document's index in the list that was ranked, its score, and where the passage begins and ends in its text.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    score: float
    begin: int
    end: int


class TokenisedPairs(NamedTuple):
    """(query, document) texts as tokens.

    `builder` makes the passages of `pairs`, the (query_id, doc_id) of the distinct texts; `places` has the place in
    `pairs` of each text that was given.
    """

    builder: PassageBuilder
    pairs: list[tuple[str, str]]
    places: list[int]


class PairScores(NamedTuple):
    """The scores of (query, document) pairs, and of each pair the passage with the highest score.

    (pairs,) float32 scores, and (pairs, 2) the number of the passage, from 0, and the number of passages.
    """

    scores: np.ndarray
    best: np.ndarray

    def take(self, places: Sequence[int]) -> "PairScores":
        """The scores of the pairs at these places, in their order."""
        return PairScores(self.scores[places], self.best[places])


def with_first_scores(scores: np.ndarray, first_scores: Sequence[float] | None, weight: float) -> np.ndarray:
    """(documents,) scores of a query, and `weight` times the standardised first-stage scores, if any are given.

    Raises ValueError if there is not one for each document.
    """
    if not weight or first_scores is None:
        return scores
    if len(first_scores) != len(scores):
        raise ValueError(f"first_scores: got {len(first_scores)} for {len(scores)} documents")
    added = np.array(standardised(first_scores), dtype=np.float32)
    return np.asarray(scores + np.float32(weight) * added)


def check_texts(query: Any, documents: Any) -> None:
    """Raises TypeError for a query, or a document, that is not a text."""
    if not isinstance(query, str):
        raise TypeError(f"query: expected a text, got {type(query).__name__}")
    if isinstance(documents, str):
        raise TypeError("documents: expected a sequence of texts, got one text")
    for index, document in enumerate(documents):
        if not isinstance(document, str):
            raise TypeError(f"documents[{index}]: expected a text, got {type(document).__name__}")
