"""Fraction of judged documents at each rank."""

from typing import Any, NamedTuple

import numpy as np

from rerank.data.trec import ranked
from rerank.data.types import Qrels, Run
from rerank.reports.charts.depth import common_queries
from rerank.reports.charts.drawing import QUIET, colour, legend_above
from rerank.runs.run_file_results import Results


class Judged(NamedTuple):
    """(depths,) shares of judged documents among the first 1, 2, ... of each run, mean over `queries` queries."""

    queries: int
    first_stages: dict[str, np.ndarray]
    experiments: dict[str, np.ndarray]


def judged_shares(run: Run, qrels: Qrels, query_ids: list[str], depth: int) -> np.ndarray:
    """(depth,) mean over the queries of the share of judged documents among the first k, for k from 1.

    A ranking that is shorter than k keeps its last share; an empty one is left out.

    >>> judged_shares({"q": {"a": 3.0, "b": 2.0}}, {"q": {"b": 0}}, ["q"], 3)
    array([0. , 0.5, 0.5])
    """
    shares = []
    for query_id in query_ids:
        hits = np.array([doc_id in qrels[query_id] for doc_id in ranked(run.get(query_id, {}))[:depth]], dtype=float)
        if len(hits):
            share = hits.cumsum() / np.arange(1, len(hits) + 1)
            shares.append(np.pad(share, (0, depth - len(share)), mode="edge"))
    return np.asarray(np.mean(shares, axis=0))


def judged(results: Results) -> Judged:
    """The shares over the queries that all experiments have tested; raises UserError if there are none."""
    queries = common_queries(results)
    experiments = [experiment for experiment in results.experiments if experiment.first_stage]
    deepest = max(len(scores) for experiment in experiments for scores in experiment.first_stage.values())
    return Judged(
        len(queries),
        {
            results.first_stage_names[e.name]: judged_shares(e.first_stage, results.qrels, queries, deepest)
            for e in experiments
        },
        {e.name: judged_shares(e.run, results.qrels, queries, deepest) for e in experiments},
    )


def draw_judged(figure: Any, data: Judged) -> None:
    """A line per run."""
    axes = figure.subplots()
    for name, shares in data.first_stages.items():
        axes.plot(range(1, len(shares) + 1), 100 * shares, color=QUIET, linestyle=":", label=name)
    for number, (name, shares) in enumerate(data.experiments.items()):
        axes.plot(range(1, len(shares) + 1), 100 * shares, color=colour(number), label=name)
    axes.set_ylim(0, 103)
    axes.set_xlabel("rank")
    axes.set_ylabel("% judged up to here")
    legend_above(axes)
