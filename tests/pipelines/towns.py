"""A pipeline on the small collection, and what the tests of fits compare and change."""

from pathlib import Path

import rerank
from rerank.config import TrainingSettings
from rerank.pipelines.stages import (
    BM25Stage,
    DenseStage,
    FeedbackStage,
    FusionStage,
    LateInteractionStage,
    QueryAdapterStage,
)

ADAPTING = TrainingSettings(epochs=4, lists_per_epoch="all", lists_per_step=2, head_lr=1e-2)
STAGES = {
    "bm25": BM25Stage(k1=1.2, b=0.75),
    "dense": DenseStage("encoder"),
    "feedback": FeedbackStage(("bm25", "dense"), "encoder"),
    "fused": FusionStage(("bm25", "dense", "feedback")),
    "late": LateInteractionStage("fused", "encoder", depth=10),
    "adapter": QueryAdapterStage("late", "encoder", depth=10, below_weight=1.0, training=ADAPTING),
}
FOLDER = Path("runs/towns/pipeline")
"""Where a fit without `out` writes the pipeline."""
QUERY = "q0"
"""A query of the collection."""


def pipeline(**more):
    return rerank.Pipeline({**STAGES, **more})


def contents(folder=FOLDER):
    """The bytes of what was fitted and ranked; times differ."""
    files = [*folder.glob("runs/*"), *folder.glob("stages/**/*"), folder / "pipeline.toml"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.is_file()}


def judgments_turned(queries):
    """The qrels of the collection, with the grades of these queries turned round."""
    lines = Path("towns/qrels/test.tsv").read_text().splitlines()
    split = [line.split("\t") for line in lines]
    turned = [[q, d, str(1 - int(g))] if q in queries else [q, d, g] for q, d, g in split[1:]]
    Path("towns/qrels/test.tsv").write_text("\n".join("\t".join(line) for line in [split[0], *turned]) + "\n")
