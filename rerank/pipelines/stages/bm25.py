"""The stage `bm25`: Pyserini's BM25 on the Lucene index of the collection."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

from rerank.data.types import Fold, Run
from rerank.evaluation.evaluate import values_of
from rerank.evaluation.weights import MEASURE, almost_best
from rerank.pipelines.stages.base import Learns, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.world import World
from rerank.utils.json_files import read_json
from rerank.utils.parameters import Whole, at_least, between
from rerank.utils.progress import progress

if TYPE_CHECKING:
    from rerank.retrieval.bm25 import Searcher

FILE = "bm25.json"
"""The file with the tuned k1 and b."""

K1 = (0.6, 0.9, 1.2, 1.6, 2.0, 3.0)
"""The values of k1 that are tried."""

B = (0.2, 0.4, 0.6, 0.75, 0.9)
"""The values of b that are tried."""

TUNED_DEPTH = 100
"""Documents of a query in the rankings that tune k1 and b."""


class Chosen(TypedDict):
    """bm25.json."""

    k1: float
    b: float


@stage
@dataclass(frozen=True)
class BM25Stage(Composable):
    """Retrieves documents by the words of the query (`rerank.retrieval.bm25`).

    >>> BM25Stage(k1=1.2, b=0.75).learns, BM25Stage(tune=True).learns
    ('nothing', 'cheaply')
    """

    k1: Annotated[float, between(0, 10**6)] = 0.9
    """BM25's k1."""
    b: Annotated[float, between(0, 1)] = 0.4
    """BM25's b."""
    tune: bool = False
    """Whether judgments tune k1 and b: of the almost best values, those nearest to `k1` and `b`."""
    rm3: bool = False
    """Whether words of the ten best documents are added to the query, by Pyserini's RM3."""
    depth: Annotated[Whole, at_least(1)] = 1000
    """Documents of a query."""
    kind: ClassVar[str] = "bm25"
    of: ClassVar[tuple[str, ...]] = ()

    @property
    def learns(self) -> Learns:
        """Cheaply if judgments tune k1 and b."""
        return "cheaply" if self.tune else "nothing"

    def unlearned(self) -> "BM25Stage":
        return replace(self, tune=False)

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "BM25Ranker":
        """Builds the index, unless it exists, and tunes k1 and b on the judged queries of the fold."""
        qrels = world.collection.qrels
        judged = [query_id for query_id in (*fold.train, *fold.valid) if qrels.get(query_id)] if self.tune else []
        if not judged:
            return BM25Ranker(self, world, self._index(world))
        tried = [
            replace(self, k1=k1, b=b, depth=TUNED_DEPTH)
            for k1, b in dict.fromkeys([(self.k1, self.b), *itertools.product(K1, B)])
        ]
        queries = {**world.queries, **{query_id: world.collection.queries[query_id] for query_id in judged}}
        values = []
        for settings in progress(tried, len(tried), "tuning BM25"):
            run = world.runs.setdefault(settings, {})  # cached for the fits on other parts
            if missing := {query_id: text for query_id, text in queries.items() if query_id not in run}:
                found = BM25Ranker(settings, world, self._index(world)).rank(missing, [])
                run.update((query_id, found.get(query_id, {})) for query_id in missing)
            values.append(list(values_of(run, qrels, judged, MEASURE).values()))
        good = [tried[place] for place in almost_best(values)]
        chosen = min(good, key=lambda other: math.dist((other.k1 / 2, other.b), (self.k1 / 2, self.b)))
        return BM25Ranker(replace(self, k1=chosen.k1, b=chosen.b), world, self._index(world))

    def open(self, world: World, folder: Path) -> "BM25Ranker":
        settings = self
        if self.tune:
            chosen = read_json(folder / FILE, Chosen, "fit the pipeline again")
            settings = replace(self, k1=chosen["k1"], b=chosen["b"])
        return BM25Ranker(settings, world, self._index(world))

    def _index(self, world: World) -> Path:
        return world.index_with_words if self.rm3 else world.index


@dataclass(frozen=True)
class BM25Ranker:
    """Searches the index of a collection with these settings."""

    settings: BM25Stage
    world: World
    index: Path

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The best documents of each query that has text."""
        settings, searcher = self.settings, self._searcher
        with_text = {query_id: text for query_id, text in queries.items() if text.strip()}
        if len(with_text) == 1:  # needs no threads and no line in the log
            found = {query_id: searcher.search_one(text, settings.depth) for query_id, text in with_text.items()}
            return {query_id: scores for query_id, scores in found.items() if scores}
        return searcher.search(with_text, settings.depth, self.world.config.first_stage.threads or None)

    @cached_property
    def _searcher(self) -> "Searcher":
        """Stays open, so that a server searches the index that it opened."""
        from rerank.retrieval.bm25 import Searcher  # starts Java at the first search

        settings, language = self.settings, self.world.config.collection.language
        return Searcher(self.index, settings.k1, settings.b, language, settings.rm3)

    def save(self, folder: Path) -> None:
        if self.settings.tune:
            (folder / FILE).write_text(json.dumps({"k1": self.settings.k1, "b": self.settings.b}), encoding="utf-8")
