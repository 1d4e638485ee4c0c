"""The stage `neighbours`: smooths scores, so that documents that share words get similar scores.

Diaz, "Regularizing ad hoc retrieval scores", CIKM 2005: one step of smoothing on the graph of the nearest candidates.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from rerank.data.types import Candidates, Fold, Run
from rerank.evaluation.fusion import place_above
from rerank.evaluation.weights import is_ahead, values_by_weight, with_added
from rerank.pipelines.stages.base import Learns, expect_one_below, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.reranking import lists_to_rank, lists_to_tune
from rerank.pipelines.stages.world import World
from rerank.utils.json_files import read_json
from rerank.utils.parameters import Whole, at_least

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FILE = "neighbours.json"
"""The file with the learned weight."""

TINY = 1e-12
"""Lower bound of a divisor, against division by 0."""

WEIGHT = 0.5
"""The weight of the neighbours without judgments; of the almost best weights, the nearest to it is chosen."""

WEIGHTS = (0.5, 0.25, 0.75, 0.0, 1.0, 1.5, 2.0, 3.0)
"""The weights that are tried, nearest to `WEIGHT` first."""

POWER = 2
"""The weight of a neighbour is its cosine to this power."""


@stage
@dataclass(frozen=True)
class NeighboursStage(Composable):
    """Adds the mean score of the most similar other candidates to the score of a document, both standardised.

    The similarity is the cosine of tf-idf vectors. Judgments choose the weight of the neighbours: of the weights within
    1.5 standard errors of the best, the one nearest to 0.5. Documents below `depth` keep their order.

    >>> NeighboursStage("bm25").unlearned()
    NeighboursStage(of='bm25', documents=10, depth=100, weight=0.5)
    """

    kind: ClassVar[str] = "neighbours"
    of: str | tuple[str, ...] = ""
    """The stage whose documents are ranked."""
    documents: Annotated[Whole, at_least(1)] = 10
    """Neighbours of a document."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    weight: Annotated[float, at_least(0)] | None = None
    """Weight of the neighbours; None: judgments choose it."""

    @property
    def learns(self) -> Learns:
        """Cheaply, unless the weight is set."""
        return "cheaply" if self.weight is None else "nothing"

    check = expect_one_below

    def unlearned(self) -> "NeighboursStage":
        return replace(self, weight=WEIGHT) if self.weight is None else self

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "NeighboursRanker":
        """Chooses the weight."""
        if self.weight is not None:
            return NeighboursRanker(self, world, self.weight)
        ranker = NeighboursRanker(self, world, WEIGHT)
        lists = lists_to_tune((*fold.train, *fold.valid), below[0], self.depth)
        if not lists:
            return ranker
        values = values_by_weight(lists, [ranker.means(found) for found in lists], WEIGHTS, world.collection.qrels)
        best = max(values, key=lambda by_query: fmean(by_query.values()))
        good = (
            weight
            for weight, by_query in zip(WEIGHTS, values, strict=True)
            if by_query is best or not is_ahead(best, by_query)
        )
        return replace(ranker, weight=next(good))

    def open(self, world: World, folder: Path) -> "NeighboursRanker":
        weight = read_json(folder / FILE, float, "fit the pipeline again") if self.weight is None else self.weight
        return NeighboursRanker(self, world, weight)


@dataclass(frozen=True)
class NeighboursRanker:
    """Ranks with the words of the documents and a weight of the neighbours."""

    settings: NeighboursStage
    world: World
    weight: float

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        lists = lists_to_rank(queries, below[0], self.settings.depth)
        scores = {q: with_added(found, self.means(found), self.weight) for q, found in lists.items()}
        return place_above(scores, below[0])

    def means(self, found: Candidates) -> np.ndarray:
        """(candidates,) the mean score of each candidate's neighbours; 0 without a neighbour."""
        similarities = word_similarities(self.world.words(found.doc_ids)) ** POWER
        np.fill_diagonal(similarities, 0)
        nearest = np.argsort(-similarities, axis=1, kind="stable")[:, : self.settings.documents]
        counted = np.take_along_axis(similarities, nearest, axis=1)
        sums = (counted * np.array(found.first_scores)[nearest]).sum(1)
        means: np.ndarray = sums / np.maximum(counted.sum(1), TINY)
        return means

    def save(self, folder: Path) -> None:
        if self.settings.weight is None:
            (folder / FILE).write_text(json.dumps(self.weight), encoding="utf-8")


def word_similarities(documents: Sequence[Sequence[str]]) -> np.ndarray:
    """(documents, documents) the cosines of the tf-idf vectors of documents, each given as a list of words."""
    vectors = word_vectors(documents)
    cosines: np.ndarray = (vectors @ vectors.T).toarray()
    return cosines


def word_vectors(documents: Sequence[Sequence[str]]) -> "csr_array":
    """(documents, words) a sparse array of tf-idf vectors of length 1, or 0 for a document without words.

    The weight of a word is (1 + log t) log(1 + N / n) if the document has it t times and n of N documents have it.
    """
    import scipy.sparse  # takes 0.05 s; scipy.sparse.linalg would take 0.1 s more

    numbers: dict[str, int] = {}
    columns = [numbers.setdefault(word, len(numbers)) for words in documents for word in words]
    rows = np.repeat(np.arange(len(documents)), [len(words) for words in documents])
    shape = len(documents), len(numbers)
    counts = scipy.sparse.csr_array((np.ones(len(columns)), (rows, columns)), shape=shape)  # sums repeated words
    frequencies = np.bincount(counts.indices, minlength=len(numbers))
    counts.data = (1 + np.log(counts.data)) * np.log1p(len(documents) / frequencies)[counts.indices]
    lengths = np.maximum(np.sqrt(counts.power(2).sum(axis=1)), TINY)
    counts.data /= np.repeat(lengths, np.diff(counts.indptr))
    return counts
