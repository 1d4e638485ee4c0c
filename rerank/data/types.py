"""The types that all packages share: plain dictionaries and frozen records, keyed by query_id and doc_id."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Run = dict[str, dict[str, float]]
"""query_id -> doc_id -> score, as pytrec_eval takes it."""

Qrels = dict[str, dict[str, int]]
"""query_id -> doc_id -> relevance."""

Judgments = Mapping[str, dict[str, int]]
"""As Qrels; the dictionary of a query may be made when it is asked for."""

Measurements = dict[str, dict[str, float]]
"""measure -> query_id -> value."""

FINAL = "final"
"""The name of the fold that trains the model to deploy."""

FLOAT32_MAX = 3.4028235677973362e38
"""The largest float64 that rounds to a finite float32."""


class Document(NamedTuple):
    """A document of a collection; `title` is "" if it has none."""

    doc_id: str
    title: str
    body: str

    @property
    def text(self) -> str:
        """Title and body, as they are indexed and as models read them.

        >>> Document("d1", "On wings", "Lift and drag.").text
        'On wings Lift and drag.'
        """
        return f"{self.title} {self.body}" if self.title else self.body


class Marked(NamedTuple):
    """A text and the begin and end of each of its marked words, in characters: in order, none over another."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()

    def parts(self) -> list[tuple[str, bool]]:
        """The text in parts, each with whether it is marked.

        >>> Marked("the cat sleeps", ((4, 7),)).parts()
        [('the ', False), ('cat', True), (' sleeps', False)]
        """
        ends = [0, *(place for mark in self.marks for place in mark), len(self.text)]
        parts = [(self.text[begin:end], bool(number % 2)) for number, (begin, end) in enumerate(pairwise(ends))]
        return [part for part in parts if part[0]]


class Hit(NamedTuple):
    """A document that a search has found: its rank, from 1, and score.

    `snippet` is a part of the text; the words of the query are marked in it and in `title`. `stages` are the rank and
    the score that each stage of the pipeline gives the document, of those that have it. `text` is the whole text after
    the title; the passage of which the snippet is a part is marked in it. `matches` are, of a search that explains
    itself by late interaction, words of the query, each with the most similar word of the document.
    """

    doc_id: str
    rank: int
    score: float
    title: Marked
    snippet: Marked
    stages: dict[str, tuple[int, float]]
    text: Marked
    matches: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Candidates:
    """The documents that the first stage retrieved for one query, or a list to train on.

    `doc_ids` are in first-stage order. `labels` are their judgments, 0 if a document has none, or a teacher's scores.
    `first_scores` are their first-stage scores, standardised over all candidates of the query, where a model adds them
    to its own (`--encoder.first-stage-weight`); () elsewhere.
    """

    query_id: str
    doc_ids: tuple[str, ...]
    labels: tuple[float, ...]
    first_scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Fold:
    """The query ids that train, validate and test one model; no query is in more than one split."""

    name: str
    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        counts = Counter([*self.train, *self.valid, *self.test])
        if twice := sorted(query_id for query_id, count in counts.items() if count > 1):
            raise ValueError(f"fold {self.name}: queries {', '.join(twice[:5])} are in more than one split")

    @property
    def is_final(self) -> bool:
        """Whether it trains the model to deploy: on all judged queries but those that validate, and it tests none."""
        return self.name == FINAL


class BestPassage(NamedTuple):
    """A document that a cross-encoder ranks: its index, its score, and where its best passage is in its text."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    score: float
    begin: int
    end: int
