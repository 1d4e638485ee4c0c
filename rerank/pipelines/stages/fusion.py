"""The stage `fusion`: a weighted sum of the scores of the stages below."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from rerank.data.trec import first_documents
from rerank.data.types import Fold, Run
from rerank.evaluation.fusion import Weights, check_weights, fuse_scores
from rerank.evaluation.measures import measure_name
from rerank.evaluation.weights import MEASURE, MOST_TUNED, tune_weights
from rerank.pipelines.stages.base import Learns, below, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.json_files import read_numbers
from rerank.utils.parameters import Whole, at_least

FILE = "weights.json"
"""The file with the weights."""


@stage
@dataclass(frozen=True)
class FusionStage(Composable):
    """Ranks by a weighted sum of the scores of the stages below, scaled to [0, 1] for each query.

    Judged training and validation queries choose the weights (`tune_weights`): of the almost best weights, those
    nearest to equal weights. Without judgments, all weights are equal.

    >>> FusionStage(("bm25", "dense")).learns, FusionStage(("bm25", "dense"), weights=(0.5, 0.5)).learns
    ('cheaply', 'nothing')
    """

    kind: ClassVar[str] = "fusion"
    of: tuple[str, ...] = ()
    """The stages below, two or more."""
    weights: tuple[float, ...] = ()
    """Fixed weights, one for each stage below; if empty, judgments choose them."""
    measure: str = MEASURE
    """The measure that chooses the weights."""
    depth: Annotated[Whole, at_least(1)] = 1000
    """Documents of a query."""

    def check(self) -> None:
        """Raises ValueError for fewer than two stages, invalid weights and too many stages to tune.

        Raises UserError for an unknown measure.
        """
        if len(below(self)) < 2:
            raise ValueError("expected two stages or more to fuse")
        measure_name(self.measure)
        if self.weights:
            check_weights(self.weights, len(self.of))
        elif len(self.of) > MOST_TUNED:
            raise ValueError(f"expected weights, as judgments can choose the weights of at most {MOST_TUNED} stages")

    @property
    def learns(self) -> Learns:
        """Cheaply, unless the weights are set."""
        return "nothing" if self.weights else "cheaply"

    def unlearned(self) -> "FusionStage":
        return self if self.weights else replace(self, weights=(1 / len(self.of),) * len(self.of))

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "FusionRanker":
        """Chooses the weights on the judged training and validation queries."""
        qrels = world.collection.qrels
        judged = {q: qrels[q] for q in (*fold.train, *fold.valid) if qrels.get(q) and not self.weights}
        weights = tune_weights(below, judged, self.measure) if judged else self.unlearned().weights
        return FusionRanker(weights, self.depth)

    def open(self, world: World, folder: Path) -> "FusionRanker":
        remedy = "fit the pipeline again"
        weights = read_numbers(folder / FILE, len(self.of), remedy)
        try:
            check_weights(weights, len(self.of))
        except ValueError as error:
            raise UserError(f"{folder / FILE}: {error}; {remedy}") from error
        return FusionRanker(tuple(weights), self.depth)


@dataclass(frozen=True)
class FusionRanker:
    """Fuses runs with these weights (`fuse_scores`)."""

    weights: Weights
    depth: int

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        return first_documents(fuse_scores(below, self.weights), self.depth)

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self.weights), encoding="utf-8")
