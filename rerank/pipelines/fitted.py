"""Fitted: the stages of a pipeline with their rankers, on a collection."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
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

        The stages that one query can go through at the same time do. With a `budget` of milliseconds, it ends before a
        stage that would exceed it by the time that was measured; the first stage always ranks.
        """
        runs, start = dict[str, Run](), time.perf_counter()
        groups = _independent(self.stages) if len(queries) == 1 else [[name] for name in self.stages]
        for names in groups:
            left = math.inf if budget is None else budget - 1000 * (time.perf_counter() - start)
            in_time = list(takewhile(lambda name, left=left: self.ms.get(name, 0.0) <= left, names))  # type: ignore
            if ranking := in_time or ([] if runs else names[:1]):
                runs |= self._rank_together(ranking, queries, rank, runs)
            if len(ranking) < len(names):
                break
        return runs

    def _rank_together(
        self, names: Sequence[str], queries: Mapping[str, str], rank: Rank, runs: Mapping[str, Run]
    ) -> dict[str, Run]:
        """The rankings of stages none of which is below another. This thread takes the first, as a rule BM25."""

        def ranked(name: str) -> Run:
            return rank(self.rankers[name], queries, [runs[one] for one in below(self.stages[name])])

        others = {name: self._threads.submit(ranked, name) for name in names[1:]}
        return {names[0]: ranked(names[0])} | {name: future.result() for name, future in others.items()}

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max(map(len, _independent(self.stages))), thread_name_prefix="stage")


def _independent(stages: Mapping[str, Stage]) -> list[list[str]]:
    """The names of the stages, in groups of neighbours none of which is below another."""
    groups: list[list[str]] = []
    for name, settings in stages.items():
        if groups and not set(below(settings)) & set(groups[-1]):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups
