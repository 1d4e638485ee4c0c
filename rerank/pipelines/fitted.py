"""Fitted: the stages of a pipeline with their rankers, on a collection."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rerank.data.types import Run
from rerank.stages.base import Ranker, Stage, below
from rerank.stages.world import World


@dataclass(frozen=True)
class Fitted:
    """Stages in an order in which each comes after those below it, and the ranker of each.

    `inputs` are what they were fitted on, {} if that is not recorded.
    """

    stages: Mapping[str, Stage]
    world: World
    rankers: Mapping[str, Ranker]
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The name of the stage that answers."""
        return list(self.stages)[-1]

    def rank_all(self, queries: Mapping[str, str]) -> dict[str, Run]:
        """The rankings of all stages, each of which ranks once: name of the stage to run."""
        runs = dict[str, Run]()
        for name, settings in self.stages.items():
            runs[name] = self.rankers[name].rank(queries, [runs[one] for one in below(settings)])
        return runs
