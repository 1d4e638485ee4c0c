"""The stage `fusion`: the weighted sum of the scores of several stages, with weights that judgments choose."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from rerank.data.trec import first_documents
from rerank.data.types import Fold, Run
from rerank.evaluation.fusion import Weights, check_weights, fuse_scores
from rerank.evaluation.weights import MEASURE, MOST_TUNED, tune_weights
from rerank.stages.base import Learns, below, stage
from rerank.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.json_files import read_json
from rerank.utils.parameters import Whole, at_least

FILE = "weights.json"


@stage
@dataclass(frozen=True)
class Fusion:
    """Adds the scores of the stages below, scaled to [0, 1] for each query, times a weight for each stage.

    The judged queries that do not test choose the weights (`tune_weights`): of those that are almost as good as the
    best, the nearest to equal ones. Without judgments all weights are equal.
    """

    kind: ClassVar[str] = "fusion"
    of: tuple[str, ...]
    """The stages below, two or more."""
    weights: tuple[float, ...] = ()
    """Fixed weights, one for each stage below; without them judgments choose."""
    measure: str = MEASURE
    """The measure that chooses the weights."""
    depth: Annotated[Whole, at_least(1)] = 1000
    """Documents of a query."""

    def check(self) -> None:
        """Raises ValueError for fewer than two stages, for weights that are none, and for too many to choose."""
        if len(below(self)) < 2:
            raise ValueError("expected two stages or more to fuse")
        if self.weights:
            check_weights(self.weights, len(self.of))
        elif len(self.of) > MOST_TUNED:
            raise ValueError(f"expected weights, as judgments choose those of {MOST_TUNED} stages at most")

    @property
    def learns(self) -> Learns:
        """The weights are learned, unless they are given."""
        return "nothing" if self.weights else "cheaply"

    def unlearned(self) -> "Fusion":
        """The stage without judgments: all weights are equal."""
        return self if self.weights else replace(self, weights=(1 / len(self.of),) * len(self.of))

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "FusionRanker":
        """Chooses the weights on the judged training and validation queries."""
        if self.weights:
            return self._with(self.weights, "weights")
        qrels = world.collection.qrels
        judged = {q: qrels[q] for q in (*fold.train, *fold.valid) if qrels.get(q)}
        if not judged:
            return self._with(self.unlearned().weights, "weights")
        return FusionRanker(tune_weights(below, judged, self.measure), self.depth)

    def open(self, world: World, folder: Path) -> "FusionRanker":
        """Reads the weights. Raises UserError for a damaged file."""
        file = folder / FILE
        return self._with(tuple(read_json(file, list[float], "fit the pipeline again")), str(file))

    def _with(self, weights: Weights, where: str) -> "FusionRanker":
        try:
            check_weights(weights, len(self.of))
        except ValueError as error:
            raise UserError(f"{where}: {error}") from error
        return FusionRanker(weights, self.depth)


@dataclass(frozen=True)
class FusionRanker:
    """Fuses runs with these weights."""

    weights: Weights
    depth: int

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The best documents of each query by the weighted sum of its scores (`fuse_scores`)."""
        some = [{query_id: run[query_id] for query_id in queries if query_id in run} for run in below]
        return first_documents(fuse_scores(some, self.weights), self.depth)

    def save(self, folder: Path) -> None:
        """Writes the weights."""
        (folder / FILE).write_text(json.dumps(self.weights), encoding="utf-8")
