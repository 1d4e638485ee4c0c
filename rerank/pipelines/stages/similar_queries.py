"""The stage `similar-queries`: similar judged queries vote for their relevant documents.

Fitzpatrick and Dent, "Automatic feedback using past queries: social searching?", SIGIR 1997.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, ClassVar, TypedDict

import numpy as np

from rerank.data.embeddings import units
from rerank.data.types import Candidates, Fold, Run
from rerank.evaluation.fusion import place_above
from rerank.evaluation.weights import values_by_weight, with_added
from rerank.pipelines.stages.base import BI_ENCODER, Learns, expect_one_below, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.reranking import lists_to_rank, lists_to_tune
from rerank.pipelines.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.json_files import read_json
from rerank.utils.parameters import PathText, Whole, at_least

FILE = "similar-queries.json"
"""The file with the weight of the votes and the relevant documents of each judged query."""

VECTORS = "vectors.npy"
"""The file with the vectors of the judged queries."""

REMEDY = "fit the pipeline again"

POWER = 12
"""The power of a cosine that is a judged query's vote. Lower powers lose on queries about new topics (Cranfield)."""

WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
"""The weights of the votes that are tried, over the standard deviation of the votes for a candidate."""


class Learned(TypedDict):
    """The content of FILE: the weight of the votes, and the relevant documents of each judged query."""

    weight: float
    relevant: list[list[str]]


@stage
@dataclass(frozen=True)
class SimilarQueriesStage(Composable):
    """Adds votes of similar judged queries for their relevant documents to the standardised score of the stage below.

    Each of the most similar judged queries votes for its relevant documents with the twelfth power of its cosine,
    divided by the square root of the number of these documents. Judgments choose the weight of the votes (leave one
    out). Documents below `depth` keep their order.

    >>> SimilarQueriesStage("fused", "sentence-transformers/all-MiniLM-L6-v2", queries=10).learns
    'cheaply'
    """

    kind: ClassVar[str] = "similar-queries"
    of: str | tuple[str, ...] = ""
    """The stage whose documents are ranked."""
    encoder: PathText = BI_ENCODER
    """A bi-encoder of sentence-transformers, which compares queries: a hub name or a folder."""
    queries: Annotated[Whole, at_least(1)] = 20
    """Judged queries that vote."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    learns: ClassVar[Learns] = "cheaply"

    check = expect_one_below

    def vote(self, cosines: np.ndarray) -> np.ndarray:
        """(queries,) the vote of each judged query, before the division, from its cosine with the query."""
        votes: np.ndarray = np.maximum(cosines, 0.0) ** POWER
        return votes

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
        lists = lists_to_tune(judged, below[0], self.depth)
        votes = [ranker.votes(f, rows[places[f.query_id]], left_out=places[f.query_id]) for f in lists]
        spread = math.sqrt(np.mean([np.var(for_candidates) for for_candidates in votes])) if votes else 0.0
        if not spread:
            return ranker
        weights = [steps / spread for steps in WEIGHTS]
        means = [fmean(by_query.values()) for by_query in values_by_weight(lists, votes, weights, qrels)]
        return replace(ranker, weight=weights[means.index(max(means))])

    def open(self, world: World, folder: Path) -> "SimilarQueriesRanker":
        learned = read_json(folder / FILE, Learned, REMEDY)
        vectors = _read_vectors(folder / VECTORS, len(learned["relevant"]))
        return SimilarQueriesRanker(self, world, vectors, learned["relevant"], learned["weight"])


def _read_vectors(file: Path, count: int) -> np.ndarray:
    """(queries, dimensions) numbers of a file; raises UserError for any other array."""
    try:
        vectors = np.load(file, mmap_mode="r")  # mapped: its header may state more than the file has
        if len(vectors) != count or (count and vectors.ndim != 2) or vectors.dtype.kind != "f":
            raise ValueError(f"expected {count} vectors")
        return np.array(vectors)
    except (OSError, ValueError, EOFError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: not the vectors of judged queries: {error}; {REMEDY}") from error


@dataclass(frozen=True)
class SimilarQueriesRanker:
    """Ranks with judged queries.

    vectors: (queries, dimensions), of length 1; relevant: the relevant documents of each; weight: of their votes.
    """

    settings: SimilarQueriesStage
    world: World
    vectors: np.ndarray
    relevant: Sequence[Sequence[str]]
    weight: float

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        vectors = self.world.query_vectors(self.settings.encoder, queries)
        lists = lists_to_rank(queries, below[0], self.settings.depth)
        scores = {q: with_added(found, self.votes(found, vectors[q]), self.weight) for q, found in lists.items()}
        return place_above(scores, below[0])

    def votes(self, found: Candidates, vector: np.ndarray, left_out: int | None = None) -> np.ndarray:
        """(candidates,) the votes of the most similar judged queries, except number `left_out`."""
        votes = dict.fromkeys(found.doc_ids, 0.0)
        cosines = self.vectors @ units(vector) if self.relevant else np.empty(0)
        if left_out is not None:
            cosines[left_out] = 0
        nearest = np.argsort(-cosines, kind="stable")[: self.settings.queries]
        of_nearest = self.settings.vote(cosines[nearest].astype(np.float64))
        for place, vote in zip(nearest, of_nearest.tolist(), strict=True):
            for doc_id in votes.keys() & self.relevant[place]:
                votes[doc_id] += vote / math.sqrt(len(self.relevant[place]))
        return np.array(list(votes.values()))

    def save(self, folder: Path) -> None:
        learned = {"weight": self.weight, "relevant": [list(doc_ids) for doc_ids in self.relevant]}
        (folder / FILE).write_text(json.dumps(learned), encoding="utf-8")
        np.save(folder / VECTORS, self.vectors)
