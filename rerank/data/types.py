"""The types that all packages share: plain dictionaries and frozen records, keyed by query_id and doc_id."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

Run = dict[str, dict[str, float]]
"""query_id -> doc_id -> score, the format of pytrec_eval."""

Qrels = dict[str, dict[str, int]]
"""query_id -> doc_id -> relevance."""

Judgments = Mapping[str, dict[str, int]]
"""A Qrels whose dictionaries may be created on access."""

Measurements = dict[str, dict[str, float]]
"""measure -> query_id -> value."""

FINAL = "final"
"""The name of the fold that trains the model to deploy."""

GRADE_MAX = 2**31 - 1
"""The highest grade that a file of judgments may have; its negation is the lowest."""

FLOAT32_MAX = 3.4028235677973362e38
"""The largest float64 that rounds to a finite float32."""


class Document(NamedTuple):
    """A document of a collection; `title` is "" if it has none."""

    doc_id: str
    title: str
    body: str

    @property
    def text(self) -> str:
        """Title and body joined by a space, for the index and for models.

        >>> Document("d1", "On wings", "Lift and drag.").text
        'On wings Lift and drag.'
        """
        return f"{self.title} {self.body}" if self.title else self.body


class Marked(NamedTuple):
    """A text and the begin and end, in characters, of each marked word, in order and without overlaps."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()

    def parts(self) -> list[tuple[str, bool]]:
        """The text cut at the marks: pieces, each with whether it is marked.

        >>> Marked("the cat sleeps", ((4, 7),)).parts()
        [('the ', False), ('cat', True), (' sleeps', False)]
        """
        ends = [0, *(place for mark in self.marks for place in mark), len(self.text)]
        pieces = [(self.text[begin:end], bool(number % 2)) for number, (begin, end) in enumerate(pairwise(ends))]
        return [piece for piece in pieces if piece[0]]

    def cut(self, begin: int, end: int) -> "Marked":
        """The text from `begin` to `end`, with the marks that are in it.

        >>> Marked("the cat sleeps", ((4, 7),)).cut(5, 14)
        Marked(text='at sleeps', marks=((0, 2),))
        """
        inside = ((max(first, begin), min(last, end)) for first, last in self.marks if first < end and last > begin)
        return Marked(self.text[begin:end], tuple((first - begin, last - begin) for first, last in inside))


class Hit(NamedTuple):
    """A document found by a search, with its rank, from 1, and score.

    `snippet` is a piece of the text; the words of the query are marked in it and in `title`. `stages` has the rank and
    the score of the document in each stage that ranks it. `text` is the whole text after the title, with the words of
    the query marked, and `passage` the begin and end of the snippet's passage in it, (0, 0) if the text has no words.
    `matches`, in a search explained by late interaction, pairs words of the query with a similar word of the document.
    """

    doc_id: str
    rank: int
    score: float
    title: Marked
    snippet: Marked
    stages: dict[str, tuple[int, float]]
    text: Marked
    passage: tuple[int, int] = (0, 0)
    matches: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """One line: rank, score, id and title.

        >>> Hit("d1", 1, 0.51234, Marked("On wings"), Marked("Lift."), {}, Marked("Lift."))
        Hit(1, 0.5123, 'd1', 'On wings')
        """
        return f"Hit({self.rank}, {self.score:.4f}, {self.doc_id!r}, {self.title.text!r})"

    def to_dict(self, explain: bool = False) -> dict[str, Any]:
        """{doc_id, rank, score, title, snippet} for JSON; with `explain`, also the stages and the matches.

        Title and snippet are {text, marks}.
        """
        found: dict[str, Any] = {"doc_id": self.doc_id, "rank": self.rank, "score": self.score}
        found |= {"title": self.title._asdict(), "snippet": self.snippet._asdict()}
        if explain:
            stages = {name: {"rank": rank, "score": score} for name, (rank, score) in self.stages.items()}
            found |= {"stages": stages, "matches": dict(self.matches)}
        return found


class Found(NamedTuple):
    """The best documents for a query, and the number of all documents that the pipeline ranks for it.

    `note` is a line that says that the documents may be no answer; "" if there is no reason.
    """

    hits: list[Hit]
    total: int
    note: str = ""

    def to_dict(self, explain: bool = False) -> dict[str, Any]:
        """{hits, total, answered_by?, note?} for JSON; `answered_by` is the stage that ranked the hits."""
        found: dict[str, Any] = {"hits": [hit.to_dict(explain) for hit in self.hits], "total": self.total}
        if self.hits:
            found["answered_by"] = list(self.hits[0].stages)[-1]
        return found | ({"note": self.note} if self.note else {})


@dataclass(frozen=True)
class Candidates:
    """The documents that the first stage retrieved for one query, or a training list.

    `doc_ids` are in first-stage order. `labels` are judgments, 0 for a document without one, or a teacher's scores.
    `first_scores` are first-stage scores, standardised over all candidates of the query, for a model that adds them to
    its own scores (`--encoder.first-stage-weight`); otherwise ().
    """

    query_id: str
    doc_ids: tuple[str, ...]
    labels: tuple[float, ...]
    first_scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Fold:
    """The training, validation and test queries of one model, by id; no query is in more than one split."""

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
        """Whether the fold trains the model to deploy: on all but the validation queries, without test queries."""
        return self.name == FINAL


class BestPassage(NamedTuple):
    """A document ranked by a cross-encoder: its index, its score, and the place of its best passage in its text."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    score: float
    begin: int
    end: int
