"""The stage `feedback`: moves the query vectors of a bi-encoder towards the best documents of the stages below.

Pseudo-relevance feedback after Rocchio, "Relevance feedback in information retrieval", 1971, without negative
documents; for bi-encoders: Li et al., "Pseudo Relevance Feedback with Deep Language Models and Dense Retrievers", TOIS
2023.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np

from rerank.data.trec import ranked
from rerank.data.types import Fold, Run
from rerank.evaluation.fusion import fuse_ranks
from rerank.pipelines.stages.base import BI_ENCODER, Learns, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.world import World
from rerank.utils.parameters import PathText, Whole, at_least


@stage
@dataclass(frozen=True)
class FeedbackStage(Composable):
    """Retrieves with query vectors to which the vectors of the best documents of the stages below are added.

    Several stages below are fused by reciprocal rank.

    >>> FeedbackStage(("bm25", "dense"), "sentence-transformers/all-MiniLM-L6-v2").documents
    3
    """

    kind: ClassVar[str] = "feedback"
    of: str | tuple[str, ...] = ""
    """The stages whose best documents are taken as relevant."""
    encoder: PathText = BI_ENCODER
    """A bi-encoder of sentence-transformers: a hub name or a folder."""
    documents: Annotated[Whole, at_least(1)] = 3
    """Documents of a query that are taken as relevant."""
    depth: Annotated[Whole, at_least(1)] = 1000
    """Documents of a query."""
    index: Literal["exact", "faiss"] = "exact"
    """exact: every vector is compared; faiss: only the vectors that an index finds, for millions of documents."""
    learns: ClassVar[Learns] = "nothing"

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "FeedbackRanker":
        """Makes the vectors of the documents and their index, unless they exist."""
        return self.open(world, folder)

    def open(self, world: World, folder: Path) -> "FeedbackRanker":
        world.make_vectors(self.encoder, self.index)
        return FeedbackRanker(self, world)


@dataclass(frozen=True)
class FeedbackRanker:
    """Searches the vectors of a collection with feedback."""

    settings: FeedbackStage
    world: World

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The best documents of each query that has text; a query without documents below gets no feedback.

        The new vector is the unit vector of the query plus the mean unit vector of its best documents, scaled to the
        length of the query's vector. A document's vector is the mean of its passages'.
        """
        settings, world = self.settings, self.world
        vectors, documents = world.query_vectors(settings.encoder, queries), world.vectors(settings.encoder)
        first = fuse_ranks(below) if len(below) > 1 else below[0]
        best = {query_id: ranked(first[query_id])[: settings.documents] for query_id in vectors if query_id in first}
        numbers = documents.numbers({doc_id for doc_ids in best.values() for doc_id in doc_ids})
        for query_id, doc_ids in best.items():
            means = [_unit(documents.vectors_of(numbers[d]).mean(0)) for d in doc_ids if d in numbers]
            if means:
                query = vectors[query_id]
                moved = _unit(_unit(query) + np.mean(means, axis=0)) * np.linalg.norm(query)
                vectors[query_id] = moved.astype(np.float32)
        return world.search(settings.encoder, vectors, settings.depth, settings.index)

    def save(self, folder: Path) -> None:
        """Nothing is learned."""


def _unit(vector: np.ndarray) -> np.ndarray:
    unit: np.ndarray = vector / (np.linalg.norm(vector) or 1.0)
    return unit
