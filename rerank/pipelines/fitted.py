"""Fitted: the stages of a pipeline with their rankers, on a collection."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerank.data.types import Run
from rerank.stages.base import Ranker, Stage, below
from rerank.stages.world import World

Rank = Callable[[Ranker, Mapping[str, str], Sequence[Run]], Run]
"""Ranks queries, query_id to text, with a ranker and the runs of the stages below."""


@dataclass(frozen=True)
class Fitted:
    """Stages in an order in which each comes after those below it, and the ranker of each.

    `inputs` are what they were fitted on, {} if that is not recorded. `folder` has them, if they are saved. `ms` are
    the milliseconds that each stage takes for a query, {} if they are not measured.
    """

    stages: Mapping[str, Stage]
    world: World
    rankers: Mapping[str, Ranker]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The name of the stage that answers."""
        return list(self.stages)[-1]

    def rank_all(
        self,
        queries: Mapping[str, str],
        rank: Rank = lambda ranker, queries, under: ranker.rank(queries, under),
        budget: float | None = None,
    ) -> dict[str, Run]:
        """The rankings of all stages, each of which ranks once: name of the stage to run.

        With a `budget` of milliseconds, it ends before a stage that would exceed it by the time that was measured; the
        first stage always ranks.
        """
        runs, start = dict[str, Run](), time.perf_counter()
        for name, settings in self.stages.items():
            spent = 1000 * (time.perf_counter() - start)
            if runs and budget is not None and spent + self.ms.get(name, 0.0) > budget:
                break
            runs[name] = rank(self.rankers[name], queries, [runs[one] for one in below(settings)])
        return runs
