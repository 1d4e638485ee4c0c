"""The stage `late-interaction`: compares each token of the query with each token of a document (MaxSim)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from rerank.data.candidates import standardised
from rerank.data.types import Fold, Run
from rerank.evaluation.fusion import place_above
from rerank.pipelines.stages.base import BI_ENCODER, Learns, expect_one_below, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.reranking import lists_to_rank
from rerank.pipelines.stages.world import World
from rerank.pipelines.vectors import LateInteraction as Matcher
from rerank.utils.parameters import PathText, Whole, at_least

ALL_BELOW = 20_000
"""Most documents that a fit encodes in advance; in larger collections, a document is encoded when a query finds it."""


@stage
@dataclass(frozen=True)
class LateInteractionStage(Composable):
    """Re-ranks the best documents of the stage below by MaxSim: for each query token, the most similar document token.

    Tokens are weighted by their rarity in the collection, unless the encoder was trained for late interaction. The
    score of the stage below is added, both standardised by query; then, unless the encoder was trained for it, the
    similarity to the topics of the best document (ColBERT-PRF). Documents below `depth` keep their order.

    >>> LateInteractionStage("bm25", "sentence-transformers/all-MiniLM-L6-v2").learns
    'nothing'
    """

    kind: ClassVar[str] = "late-interaction"
    of: str | tuple[str, ...] = ""
    """The stage whose documents are ranked."""
    encoder: PathText = BI_ENCODER
    """A bi-encoder, or a model trained for late interaction, of sentence-transformers: a name or a folder."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked."""
    below_weight: Annotated[float, at_least(0)] = 3.0
    """Weight of the standardised score of the stage below."""
    feedback_weight: Annotated[float, at_least(0)] = 0.25
    """Weight of the similarity to the tokens of the best document."""
    learns: ClassVar[Learns] = "nothing"

    check = expect_one_below

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "LateInteractionRanker":
        """Encodes the documents of a small collection (ALL_BELOW), unless their codes exist."""
        ranker = self.open(world, folder)
        if world.texts.count() <= ALL_BELOW:
            ranker.matcher.add([document.doc_id for document in world.texts.documents()])
        return ranker

    def seconds_to_prepare(self, world: World) -> float:
        """The seconds until the tokens of all documents are encoded: as long as embedding takes, with the same model.

        0 where documents are encoded when a query finds them, and for a model that was trained for late interaction.
        """
        from rerank.models.late_interaction import is_multi_vector  # loads torch

        if world.texts.count() > ALL_BELOW or is_multi_vector(world.place_of(self.encoder)):
            return 0.0
        return world.seconds_to_embed(self.encoder)

    def open(self, world: World, folder: Path) -> "LateInteractionRanker":
        """Opens the encoder and the codes of the documents."""
        return LateInteractionRanker(self, world.late_interaction(self.encoder), frozenset(world.queries.values()))


@dataclass(frozen=True)
class LateInteractionRanker:
    """Ranks with the tokens of documents; the scores of the world's queries (`known`) are cached in memory."""

    settings: LateInteractionStage
    matcher: Matcher
    known: frozenset[str] = frozenset()

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        settings, matcher = self.settings, self.matcher
        lists = lists_to_rank(queries, below[0], settings.depth)
        matcher.add(list(dict.fromkeys(doc_id for found in lists.values() for doc_id in found.doc_ids)))
        scores: Run = {}
        for query_id, found in lists.items():
            doc_ids, keep = found.doc_ids, queries[query_id] in self.known
            to_query = standardised(matcher.scores(queries[query_id], doc_ids, keep))
            values = _sum(to_query, found.first_scores, settings.below_weight)
            if settings.feedback_weight:
                best = doc_ids[values.index(max(values))]
                to_best = standardised(matcher.similarities(best, doc_ids, keep))
                values = _sum(standardised(values), to_best, settings.feedback_weight)
            scores[query_id] = dict(zip(doc_ids, values, strict=True))
        return place_above(scores, below[0])

    def save(self, folder: Path) -> None:
        """Nothing is learned."""


def _sum(scores: Sequence[float], others: Sequence[float], weight: float) -> list[float]:
    return [score + weight * other for score, other in zip(scores, others, strict=True)]
