"""The stages `neighbours` and `similar-queries`: what they add to the scores has a weight that judgments choose.

Neighbours: Diaz, "Regularizing ad hoc retrieval scores", CIKM 2005: one step of smoothing on the graph of the nearest
candidates. Similar queries: Fitzpatrick and Dent, "Automatic feedback using past queries: social searching?", SIGIR
1997.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar

import numpy as np

from rerank.data.embeddings import units
from rerank.data.types import Candidates, Fold, Run
from rerank.evaluation.weights import is_ahead, values_by_weight, with_added
from rerank.stages.base import Learns, stage
from rerank.stages.reranking import ListRanker, Reranking, lists_to_tune
from rerank.stages.world import World
from rerank.utils.json_files import read_json
from rerank.utils.parameters import PathText, Whole, at_least

NEIGHBOURS, SIMILAR, VECTORS = "neighbours.json", "similar-queries.json", "vectors.npy"
TINY = 1e-12
"""A smaller sum of similarities is one of none."""
WEIGHT = 0.5
"""The weight of the neighbours without judgments, and the one that the choice by judgments stays near."""
WEIGHTS = (0.5, 0.25, 0.75, 0.0, 1.0, 1.5, 2.0, 3.0)
"""The weights of neighbours that are tried, those nearest to `WEIGHT` first."""
VOTE_WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
"""The weights of votes that are tried, in standard deviations of the votes for a candidate."""
POWER, VOTE_POWER = 2, 4
"""A neighbour, and the vote of a judged query, counts with its cosine to the power of this."""


@stage
@dataclass(frozen=True)
class Neighbours(Reranking):
    """Adds, to the standardised score of a document, the mean of those of the most similar other candidates.

    Two documents are as similar as the cosine of their tf-idf vectors. Judgments choose the weight of the neighbours:
    of those that the best one is not ahead of by more than 1.5 standard errors, the one nearest to 0.5. Documents
    below `depth` stay in their order.
    """

    kind: ClassVar[str] = "neighbours"
    of: str | tuple[str, ...]
    """The stage whose documents are ranked."""
    documents: Annotated[Whole, at_least(1)] = 10
    """Neighbours of a document."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    weight: Annotated[float, at_least(0)] | None = None
    """Weight of the neighbours; none: judgments choose it."""

    @property
    def learns(self) -> Learns:
        return "cheaply" if self.weight is None else "nothing"

    def unlearned(self) -> "Neighbours":
        return replace(self, weight=WEIGHT) if self.weight is None else self

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "NeighboursRanker":
        """Chooses the weight."""
        if self.weight is not None:
            return NeighboursRanker(self, world, self.weight)
        ranker = NeighboursRanker(self, world, WEIGHT)
        lists = lists_to_tune(self, (*fold.train, *fold.valid), below[0])
        if not lists:
            return ranker
        means = [ranker.means(found) for found in lists]
        values = values_by_weight(lists, means, WEIGHTS, world.collection.qrels)
        best = max(values, key=lambda of: fmean(of.values()))
        good = (weight for weight, of in zip(WEIGHTS, values, strict=True) if of is best or not is_ahead(best, of))
        return replace(ranker, weight=next(good))

    def open(self, world: World, folder: Path) -> "NeighboursRanker":
        """Reads the weight. Raises UserError for a damaged file."""
        weight = read_json(folder / NEIGHBOURS, float, "fit the pipeline again") if self.weight is None else self.weight
        return NeighboursRanker(self, world, weight)


@dataclass(frozen=True)
class NeighboursRanker(ListRanker):
    """Ranks with the words of a world's documents, and a weight."""

    settings: Neighbours
    world: World
    weight: float

    def scores(self, queries: Mapping[str, str], lists: Mapping[str, Candidates]) -> Run:
        return {q: with_added(found, self.means(found), self.weight) for q, found in lists.items()}

    def means(self, found: Candidates) -> np.ndarray:
        """(candidates,) the mean score of the neighbours of each one; 0 for one without a neighbour."""
        similarities = word_similarities(self.world.words(found.doc_ids)) ** POWER
        np.fill_diagonal(similarities, 0)
        nearest = np.argsort(-similarities, axis=1, kind="stable")[:, : self.settings.documents]
        counted = np.take_along_axis(similarities, nearest, axis=1)
        sums = (counted * np.array(found.first_scores)[nearest]).sum(1)
        means: np.ndarray = sums / np.maximum(counted.sum(1), TINY)
        return means

    def save(self, folder: Path) -> None:
        if self.settings.weight is None:
            (folder / NEIGHBOURS).write_text(json.dumps(self.weight), encoding="utf-8")


def word_similarities(documents: Sequence[Sequence[str]]) -> np.ndarray:
    """(documents, documents) the cosines of the tf-idf vectors of these documents, each a list of words.

    A word that a document has t times, and n of N documents have, counts (1 + log t) log(1 + N / n).
    """
    import scipy.sparse.linalg  # takes a tenth of a second

    numbers: dict[str, int] = {}
    columns = [numbers.setdefault(word, len(numbers)) for words in documents for word in words]
    rows = np.repeat(np.arange(len(documents)), [len(words) for words in documents])
    shape = len(documents), len(numbers)
    counts = scipy.sparse.csr_array((np.ones(len(columns)), (rows, columns)), shape=shape)  # equal places are summed
    frequencies = np.bincount(counts.indices, minlength=len(numbers))
    counts.data = (1 + np.log(counts.data)) * np.log1p(len(documents) / frequencies)[counts.indices]
    lengths = np.maximum(scipy.sparse.linalg.norm(counts, axis=1), TINY)
    cosines: np.ndarray = (counts @ counts.T).toarray() / np.outer(lengths, lengths)
    return cosines


@stage
@dataclass(frozen=True)
class SimilarQueries(Reranking):
    """Adds, to the standardised score of the stage below, votes for documents that are relevant to similar queries.

    Each of the most similar judged queries votes for its relevant documents with the fourth power of its cosine,
    divided by the square root of how many these are. Judgments choose the weight of the votes, each judged query with
    the votes of the others. Documents below `depth` stay in their order.
    """

    kind: ClassVar[str] = "similar-queries"
    of: str | tuple[str, ...]
    """The stage whose documents are ranked."""
    encoder: PathText
    """A bi-encoder of sentence-transformers, which compares queries: a hub name or a folder."""
    queries: Annotated[Whole, at_least(1)] = 20
    """Judged queries that vote."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    learns: ClassVar[Learns] = "cheaply"

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "SimilarQueriesRanker":
        """Keeps the judged queries of the fold, and chooses the weight of their votes."""
        qrels, queries = world.collection.qrels, world.collection.queries
        relevant = {
            query_id: [doc_id for doc_id, label in qrels.get(query_id, {}).items() if label > 0]
            for query_id in (*fold.train, *fold.valid)
        }
        vectors = world.query_vectors(self.encoder, {q: queries[q] for q, doc_ids in relevant.items() if doc_ids})
        judged = list(vectors)
        rows = units(np.array([vectors[query_id] for query_id in judged]))
        ranker = SimilarQueriesRanker(self, world, rows, [relevant[query_id] for query_id in judged], 0.0)
        places = {query_id: place for place, query_id in enumerate(judged)}
        lists = lists_to_tune(self, judged, below[0])
        votes = [ranker.votes(f, rows[places[f.query_id]], left_out=places[f.query_id]) for f in lists]
        spread = math.sqrt(np.mean([np.var(of_query) for of_query in votes])) if votes else 0.0
        if not spread:
            return ranker
        weights = [steps / spread for steps in VOTE_WEIGHTS]
        means = [fmean(of.values()) for of in values_by_weight(lists, votes, weights, qrels)]
        return replace(ranker, weight=weights[means.index(max(means))])

    def open(self, world: World, folder: Path) -> "SimilarQueriesRanker":
        """Reads the judged queries. Raises UserError for a damaged file."""
        learned = read_json(folder / SIMILAR, dict[str, Any], "fit the pipeline again")
        return SimilarQueriesRanker(self, world, np.load(folder / VECTORS), learned["relevant"], learned["weight"])


@dataclass(frozen=True)
class SimilarQueriesRanker(ListRanker):
    """Judged queries, their (queries, dimensions) vectors of length 1, their relevant documents and their weight."""

    settings: SimilarQueries
    world: World
    vectors: np.ndarray
    relevant: Sequence[Sequence[str]]
    weight: float

    def scores(self, queries: Mapping[str, str], lists: Mapping[str, Candidates]) -> Run:
        vectors = self.world.query_vectors(self.settings.encoder, queries)
        return {q: with_added(found, self.votes(found, vectors[q]), self.weight) for q, found in lists.items()}

    def votes(self, found: Candidates, vector: np.ndarray, left_out: int | None = None) -> np.ndarray:
        """(candidates,) the votes of the most similar judged queries, without the one at the place `left_out`."""
        votes = dict.fromkeys(found.doc_ids, 0.0)
        cosines = self.vectors @ units(vector) if self.relevant else np.empty(0)
        if left_out is not None:
            cosines[left_out] = 0
        for place in np.argsort(-cosines, kind="stable")[: self.settings.queries].tolist():
            for doc_id in votes.keys() & self.relevant[place]:
                votes[doc_id] += max(0.0, float(cosines[place])) ** VOTE_POWER / math.sqrt(len(self.relevant[place]))
        return np.array(list(votes.values()))

    def save(self, folder: Path) -> None:
        learned = {"weight": self.weight, "relevant": [list(doc_ids) for doc_ids in self.relevant]}
        (folder / SIMILAR).write_text(json.dumps(learned), encoding="utf-8")
        np.save(folder / VECTORS, self.vectors)
