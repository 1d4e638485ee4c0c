"""What re-ranking could do at most, and did: recall of the candidates, upper_bounds, and what was reached of them."""

import math
from typing import NamedTuple

from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES
from rerank.reports.charts.depth import common_queries, ideal
from rerank.reports.html.elements import Html, join, percent, table, tag
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults
from rerank.types import Qrels, Run

RECALL_DEPTHS = (10, 20, 50, 100, 200, 500, 1000)


class UpperBound(NamedTuple):
    """One measure, mean over the queries: before re-ranking, of the ideal re-ranking, and of each experiment."""

    measure: str
    first: float
    ideal: float
    reached: dict[str, float]


def upper_bounds(results: CollectionResults, experiments: list[ExperimentResults]) -> list[UpperBound]:
    """Every measure of the table, of experiments with the same first stage, over the queries common to all."""
    queries = common_queries(results)
    first = {query_id: experiments[0].candidates().get(query_id, {}) for query_id in queries}
    qrels = results.judged(queries)
    runs = {experiment.name: experiment.run for experiment in experiments}
    first_values, ideal_values = _means(qrels, first), _means(qrels, ideal(first, qrels))
    reached = {name: _means(qrels, run) for name, run in runs.items()}
    return [
        UpperBound(name, first_values[name], ideal_values[name], {run: values[name] for run, values in reached.items()})
        for name in DEFAULT_MEASURES
    ]


def upper_bound_table(results: CollectionResults, experiments: list[ExperimentResults]) -> Html:
    """The upper_bounds as a table, and what the candidates hold."""
    rows = []
    for row in upper_bounds(results, experiments):
        reached = [_reached(row, value) for value in row.reached.values()]
        rows.append([row.measure, f"{row.first:.4f}", *reached, f"{row.ideal:.4f}"])
    name = results.first_stage_name(experiments[0])
    head = ["mean", name, *(experiment.name for experiment in experiments), "ideal re-ranking"]
    explained = (
        f"Over {len(common_queries(results))} queries. The ideal re-ranking puts the candidates of {name} in the order "
        "of their judgments. Behind a mean: the share of this ceiling that was reached, and the share of the way from "
        f"{name} to it."
    )
    return join([tag("p", explained, class_="quiet"), table(head, rows), recall_table(results, experiments[0])])


def recall_table(results: CollectionResults, experiment: ExperimentResults) -> Html:
    """Recall of the candidates at several depths, and the queries without a relevant one."""
    queries = common_queries(results)
    first = {query_id: experiment.candidates().get(query_id, {}) for query_id in queries}
    qrels = results.judged(queries)
    deepest = max(map(len, first.values()))
    depths = [*(depth for depth in RECALL_DEPTHS if depth < deepest), deepest]
    means = _means(qrels, first, [f"R@{depth}" for depth in depths])
    without = sum(not any(qrels[q].get(doc_id, 0) > 0 for doc_id in first[q]) for q in queries)
    row = [
        f"recall of {results.first_stage_name(experiment)}",
        *(f"{means[f'R@{depth}']:.4f}" for depth in depths),
    ]
    note = f"{without} of {len(queries)} queries have no relevant candidate: no re-ranking can help them."
    return join([table(["among the first", *depths], [row]), tag("p", note, class_="quiet")])


def _reached(row: UpperBound, value: float) -> Html:
    of_ceiling, of_way = _share(value, row.ideal), _share(value - row.first, row.ideal - row.first)
    return join([f"{value:.4f} ", tag("small", f"{percent(of_ceiling)} · {percent(of_way)}")])


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _means(qrels: Qrels, run: Run, measures: list[str] | tuple[str, ...] = DEFAULT_MEASURES) -> dict[str, float]:
    measured = evaluate(qrels, run, measures)
    return {name: sum(values.values()) / len(values) for name, values in measured.items()}
