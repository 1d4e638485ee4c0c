"""Measures the time that each stage of a fit takes for a query."""

import itertools
import time
from collections.abc import Mapping, Sequence
from statistics import median

from rerank.data.types import Run
from rerank.pipelines.crossfit import CrossFitting
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.stages.base import Ranker, below

TIMED = 20
"""Queries that are timed."""


def times_of(fitting: CrossFitting, tested: Sequence[str]) -> dict[str, float]:
    """The milliseconds of each stage for a query: the median over TIMED queries, asked one by one.

    The queries are those of the first tested part, which the rankers have not learned from, or those of the collection.
    It is the processor's time of all threads, so that other programs do not count. The stages that search are asked
    before, as Java compiles the code of BM25 while it runs: a server is timed, not a first query.
    """
    first = frozenset(tested[:1])
    queries = {query_id: fitting.queries[query_id] for part in first for query_id in fitting.parts[part]}
    for part in first:
        for name in fitting.stages:  # once before it is timed: an encoder embeds the documents that it ranks
            fitting.run(name, part, first)
    pipeline = Fitted(fitting.stages, fitting.world, {name: fitting.ranker(name, first) for name in fitting.stages})
    rows: list[list[float]] = []

    def timed(ranker: Ranker, queries: Mapping[str, str], runs: Sequence[Run]) -> Run:
        start = time.process_time()
        run = ranker.rank(queries, runs)
        rows[-1].append(1000 * (time.process_time() - start))
        return run

    asked = dict(itertools.islice((queries or fitting.world.collection.queries).items(), TIMED))
    searching = [ranker for name, ranker in pipeline.rankers.items() if not below(fitting.stages[name])]
    for ranker, (query_id, text) in itertools.product(searching, asked.items()):
        ranker.rank({query_id: f"{text}  "}, [])
    for query_id, text in asked.items():
        rows.append([])
        pipeline.rank_all({query_id: f"{text} "}, timed)  # the space avoids the cached vector of the query
    return {name: median(column) for name, column in zip(pipeline.stages, zip(*rows, strict=True), strict=False)}
