"""Draws the measure and its upper bound against the re-ranking depth."""

from typing import NamedTuple

from matplotlib.figure import Figure

from rerank.data.trec import ranked
from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.experiments.report.drawing import INK, QUIET, colour
from rerank.experiments.runs.results import Results
from rerank.utils.errors import UserError

DEPTHS = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
"""The depths on the x-axis, up to the deepest first stage."""


def common_queries(results: Results) -> list[str]:
    """The judged queries that every experiment with a first stage has tested; raises UserError if there is none."""
    sets = [set(experiment.run) for experiment in results.experiments if experiment.first_stage]
    query_ids = [query_id for query_id in results.qrels if sets and all(query_id in tested for tested in sets)]
    if not query_ids:
        for experiment in results.experiments:
            experiment.candidates()
        raise UserError(f"{results.where}: no query was tested by all experiments, so one chart cannot compare them")
    return query_ids


def expect_re_rankings(results: Results) -> None:
    """Raises UserError for a run with a document that its first stage does not have."""
    for experiment in results.experiments:
        for query_id, candidates in experiment.first_stage.items():
            if added := experiment.run.get(query_id, {}).keys() - candidates.keys():
                name, what = experiment.name, f"document {min(added)} of query {query_id}"
                below = results.first_stage_names[name]
                raise UserError(f"{name}: has {what}, which {below} does not have; expected a re-ranking of it")


def re_ranked(first: Run, run: Run, depth: int) -> Run:
    """The first `depth` documents of each query in the run's order, then the others in the first stage's order.

    >>> re_ranked({"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"a": 1.0, "b": 2.0, "c": 3.0}}, 2)
    {'q': {'b': 0.0, 'a': -1.0, 'c': -2.0}}
    """
    runs = {}
    for query_id, scores in first.items():
        order, new_scores = ranked(scores), run.get(query_id, {})
        head = set(order[:depth])
        reordered = [doc_id for doc_id in ranked(new_scores) if doc_id in head]
        reordered += [doc_id for doc_id in order[:depth] if doc_id not in new_scores]
        runs[query_id] = {doc_id: float(-rank) for rank, doc_id in enumerate(reordered + order[depth:])}
    return runs


def ideal(first: Run, qrels: Qrels) -> Run:
    """The same documents by descending grade, the best possible re-ranking."""
    return {
        query_id: {doc_id: float(max(0, qrels.get(query_id, {}).get(doc_id, 0))) for doc_id in scores}
        for query_id, scores in first.items()
    }


class Depths(NamedTuple):
    """The mean measure at each depth: `reached` by each experiment, and the upper bound for each first stage."""

    queries: int
    depths: list[int]
    reached: dict[str, list[float]]
    upper_bounds: dict[str, list[float]]


def depths(results: Results) -> Depths:
    """The curves over the queries that all experiments have tested; raises UserError if there are none."""
    queries = common_queries(results)
    expect_re_rankings(results)
    experiments = [experiment for experiment in results.experiments if experiment.first_stage]
    deepest = max(len(scores) for experiment in experiments for scores in experiment.first_stage.values())
    steps = [0, *(depth for depth in DEPTHS if depth < deepest), deepest]
    qrels = results.judged(queries)

    def means(first: Run, run: Run) -> list[float]:
        runs = (re_ranked(first, run, depth) for depth in steps)
        values = (evaluate(qrels, run, [results.measure])[results.measure].values() for run in runs)
        return [sum(by_query) / len(by_query) for by_query in values]

    upper_bounds, reached = {}, {}
    for experiment in experiments:
        first = {q: experiment.first_stage[q] for q in queries if q in experiment.first_stage}
        name = results.first_stage_names[experiment.name]
        if name not in upper_bounds:
            upper_bounds[name] = means(first, ideal(first, qrels))
        reached[experiment.name] = means(first, experiment.run)
    return Depths(len(queries), steps, reached, upper_bounds)


def draw_depths(figure: Figure, results: Results) -> None:
    """Draws a line per experiment, from the first stage at depth 0, and the upper bounds as dashed lines."""
    data, axes = depths(results), figure.subplots()
    for name, values in data.upper_bounds.items():
        axes.plot(data.depths, values, "--", color=INK, label=f"ideal re-ranking of {name}", linewidth=1)
        axes.axhline(values[0], color=QUIET, linewidth=1, linestyle=":", label=name)
    for number, (name, values) in enumerate(data.reached.items()):
        axes.plot(data.depths, values, color=colour(number), marker=".", label=name)
    axes.set_xlabel("documents re-ranked per query")
    axes.set_ylabel(f"{results.measure}, mean of {data.queries} queries")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.2)  # above the axes
