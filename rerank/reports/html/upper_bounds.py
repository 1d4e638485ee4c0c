"""Upper bounds: the best possible re-ranking of the candidates, and how much of it the experiments reached."""

import math
from statistics import fmean

from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES
from rerank.reports.charts.depth import common_queries, expect_re_rankings, ideal
from rerank.reports.html.parts import Noted, Rows, percent
from rerank.runs.results import Compared, Results

RECALL_DEPTHS = (10, 20, 50, 100, 200, 500, 1000)


def upper_bound_table(results: Results, experiments: list[Compared]) -> Rows:
    """A row per measure of the summary, over the queries common to all experiments.

    Before re-ranking, each of these experiments, which have the same first stage, and the ideal re-ranking.
    """
    qrels, candidates = _common(results, experiments[0])
    before, best = _means(qrels, candidates), _means(qrels, ideal(candidates, qrels))
    reached = [_means(qrels, experiment.run) for experiment in experiments]
    rows = [
        [
            measure,
            f"{first:.4f}",
            *(_reached(first, best[measure], means[measure]) for means in reached),
            f"{best[measure]:.4f}",
        ]
        for measure, first in before.items()
    ]
    name = results.first_stage_names[experiments[0].name]
    note = (
        f"Over {len(common_queries(results))} queries. The ideal re-ranking sorts the candidates of {name} by their "
        "judgments. Next to a mean: its share of this upper bound, and how much of the gap between "
        f"{name} and the upper bound it closes."
    )
    return Rows(["mean", name, *(experiment.name for experiment in experiments), "ideal re-ranking"], rows, note)


def recall_table(results: Results, experiment: Compared) -> tuple[Rows, str]:
    """Recall of the candidates at several depths, and a line on the queries without a relevant candidate."""
    qrels, candidates = _common(results, experiment)
    deepest = max(map(len, candidates.values()))
    depths = [*(depth for depth in RECALL_DEPTHS if depth < deepest), deepest]
    names = [f"R@{depth}" for depth in depths]
    means = _means(qrels, candidates, names)
    without = sum(not any(qrels[q].get(doc_id, 0) > 0 for doc_id in candidates[q]) for q in qrels)
    row = [f"recall of {results.first_stage_names[experiment.name]}", *(f"{means[name]:.4f}" for name in names)]
    note = f"{without} of {len(qrels)} queries have no relevant candidate: no re-ranking can help them."
    return Rows(["among the first", *depths], [row]), note


def _common(results: Results, experiment: Compared) -> tuple[Qrels, Run]:
    """The judgments and the candidates of the queries that all experiments tested."""
    expect_re_rankings(results)
    query_ids, candidates = common_queries(results), experiment.candidates()
    return results.judged(query_ids), {query_id: candidates.get(query_id, {}) for query_id in query_ids}


def _reached(first: float, best: float, value: float) -> Noted:
    return Noted(f"{value:.4f}", f"{percent(_share(value, best))} · {percent(_share(value - first, best - first))}")


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _means(qrels: Qrels, run: Run, measures: list[str] | tuple[str, ...] = DEFAULT_MEASURES) -> dict[str, float]:
    return {name: fmean(values.values()) for name, values in evaluate(qrels, run, measures).items()}
