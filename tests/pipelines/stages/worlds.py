"""Stages of every kind on the small collection, and the runs that they rank."""

from dataclasses import replace
from pathlib import Path

from rerank.config import Config, EncoderSettings, TrainingSettings
from rerank.data.types import FINAL, Fold
from rerank.pipelines.stages import (
    BM25Stage,
    CrossEncoderStage,
    DenseStage,
    FeaturesStage,
    FeedbackStage,
    FusionStage,
    LateInteractionStage,
    NeighboursStage,
    QueryAdapterStage,
    RunFileStage,
    SimilarQueriesStage,
    SparseStage,
    TrainedEncoderStage,
)
from rerank.pipelines.stages.world import World
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_sparse_encoder

ADAPTING = TrainingSettings(epochs=2, lists_per_epoch="all", lists_per_step=2, head_lr=3e-3)
STAGES = {
    "bm25": BM25Stage(),
    "dense": DenseStage("encoder"),
    "sparse": SparseStage("sparse"),
    "feedback": FeedbackStage(("bm25", "dense"), "encoder"),
    "run": RunFileStage("runs/towns/bm25.run"),
    "fusion": FusionStage(("bm25", "dense")),
    "features": FeaturesStage(("bm25", "dense"), training=ADAPTING),
    "query-adapter": QueryAdapterStage("bm25", "encoder", depth=4, training=ADAPTING),
    "similar-queries": SimilarQueriesStage("bm25", "encoder", queries=3, depth=4),
    "late-interaction": LateInteractionStage("bm25", "encoder", depth=4, below_weight=1.0, feedback_weight=0.5),
    "neighbours": NeighboursStage("bm25", documents=2, depth=4),
    "trained-encoder": TrainedEncoderStage("bm25", "encoder", depth=4, lists_per_epoch=8, lists_per_step=3, lr=1e-3),
    "cross-encoder": CrossEncoderStage(
        "bm25", EncoderSettings("encoder"), depth=4, training=TrainingSettings(epochs=1, lists_per_epoch=4, lr=1e-3)
    ),
}
"""A stage of each kind, by kind."""
FOLD = Fold(FINAL, tuple(f"q{n}" for n in range(3, 12)), ("q12", "q13", "q14"), ())
TESTED = ("q0", "q1", "q2")


class Judged:
    """A collection with other judgments."""

    def __init__(self, collection, qrels):
        self._collection, self.qrels = collection, qrels

    def __getattr__(self, name):
        return getattr(self._collection, name)


def open_world(**settings) -> World:
    if not Path("sparse").exists():
        make_sparse_encoder(Path("sparse"), [*WORDS, "good", "bad"])
    config = replace(Config("towns"), **settings)
    world = World.open(config)
    return world.knowing(world.collection.queries)


def runs_below(world: World, kind: str, query_ids) -> list:
    """The runs of BM25 and, for what fuses, of the bi-encoder."""
    of_both = dict.fromkeys(("feedback", "fusion", "features"), ("bm25", "dense"))
    kinds: dict = {"bm25": (), "dense": (), "run": ()} | of_both
    queries = {query_id: world.collection.queries[query_id] for query_id in query_ids}
    return [STAGES[name].open(world, Path()).rank(queries, []) for name in kinds.get(kind, ("bm25",))]


def fitted(world: World, kind: str, folder: Path):
    below = runs_below(world, kind, (*FOLD.train, *FOLD.valid))
    return STAGES[kind].fit(world, FOLD, below, folder)


def ranked_by(ranker, world: World, kind: str, query_ids=TESTED):
    queries = {query_id: world.collection.queries[query_id] for query_id in query_ids}
    return ranker.rank(queries, runs_below(world, kind, query_ids))
