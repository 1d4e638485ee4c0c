"""The page's tables on upper bounds, on how far documents moved, and on what is judged and truncated."""

import math
from collections.abc import Sequence
from statistics import fmean

from rerank.data.trec import ranked
from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES
from rerank.reports.charts.depth import common_queries, expect_re_rankings, ideal, judged
from rerank.reports.html.parts import Missing, Noted, Rows, percent
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import Compared, Results

JUDGED_AT = (1, 5, 10, 20, 50, 100, 150)
RECALL_AT = (10, 20, 50, 100, 200, 500, 1000)


def upper_bound_table(results: Results, experiments: list[Compared]) -> Rows:
    """A row per measure of the summary, over the queries common to all experiments.

    Before re-ranking, each of these experiments, which have the same first stage, and the ideal re-ranking: the best
    possible one of the candidates.
    """
    qrels, candidates = _common(results, experiments[0])
    first, best = _means(qrels, candidates), _means(qrels, ideal(candidates, qrels))
    reached = [_means(qrels, experiment.run) for experiment in experiments]
    rows = []
    for m in DEFAULT_MEASURES:
        cells = [_reached(first[m], best[m], means[m]) for means in reached]
        rows.append([m, f"{first[m]:.4f}", *cells, f"{best[m]:.4f}"])
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
    depths = [*(depth for depth in RECALL_AT if depth < deepest), deepest]
    means = _means(qrels, candidates, [f"R@{depth}" for depth in depths])
    without = sum(not any(qrels[q].get(doc_id, 0) > 0 for doc_id in candidates[q]) for q in qrels)
    row = [f"recall of {results.first_stage_names[experiment.name]}", *(f"{mean:.4f}" for mean in means.values())]
    note = f"{without} of {len(qrels)} queries have no relevant candidate: no re-ranking can help them."
    return Rows(["among the first", *depths], [row]), note


def _common(results: Results, experiment: Compared) -> tuple[Qrels, Run]:
    """The judgments and the candidates of the queries that all experiments tested."""
    expect_re_rankings(results)
    query_ids, candidates = common_queries(results), experiment.candidates()
    return results.judged(query_ids), {query_id: candidates.get(query_id, {}) for query_id in query_ids}


def _reached(first: float, best: float, value: float) -> Noted:
    parts = (value, best), (value - first, best - first)
    shares = [percent(part / whole if whole else math.nan) for part, whole in parts]
    return Noted(f"{value:.4f}", " · ".join(shares))


def _means(qrels: Qrels, run: Run, measures: Sequence[str] = DEFAULT_MEASURES) -> dict[str, float]:
    return {name: fmean(values.values()) for name, values in evaluate(qrels, run, measures).items()}


def movement_table(experiments: Sequence[Compared]) -> Rows:
    """How the test rankings differ from the first stage's: a row per experiment, over all queries that it tested."""
    head = ["run", "queries", "Kendall's τ", "top 10 that stayed", "top 20 that stayed", "ranks moved"]
    rows = []
    for experiment in experiments:
        tau, top_10, top_20, moved = _movement(experiment)
        overlaps = percent(top_10), percent(top_20)
        rows.append([experiment.name, len(experiment.run), f"{tau:.3f}", *overlaps, f"{moved:.1f}"])
    return Rows(head, rows)


def _movement(experiment: Compared) -> list[float]:
    """Means over the queries with several candidates: Kendall's tau, the shares of the first 10 and 20, ranks moved."""
    import numpy as np
    from scipy.stats import kendalltau  # only here: it takes a second to import

    rows = []
    for query_id, scores in experiment.candidates().items():
        before = ranked(scores)
        new_rank = {doc_id: rank for rank, doc_id in enumerate(ranked(experiment.run[query_id]))}
        after = [new_rank[doc_id] for doc_id in before if doc_id in new_rank]
        if len(after) > 1:
            stayed = [sum(rank < k for rank in after[:k]) / min(k, len(after)) for k in (10, 20)]
            moved = np.abs(np.subtract(after, range(len(after)))).mean()
            rows.append([kendalltau(range(len(after)), after).statistic, *stayed, moved])
    means: list[float] = np.mean(rows or [[np.nan] * 4], axis=0).tolist()
    return means


def judged_table(results: Results) -> Rows:
    """The share of judged documents at several depths, a row per run, over the queries that all experiments tested."""
    shares = judged(results)
    runs = shares.first_stages | shares.experiments
    depths = [depth for depth in JUDGED_AT if all(depth <= len(of_run) for of_run in runs.values())]
    rows = [[name, *(percent(of_run[depth - 1]) for depth in depths)] for name, of_run in runs.items()]
    note = f"Over the {shares.queries} queries that all experiments tested."
    return Rows(["judged among the first", *depths], rows, note)


def truncation_table(experiments: list[ExperimentResults]) -> Rows | Missing:
    """What the models did not see: a row per experiment, from its first fold's manifest."""
    rows = []
    for experiment in experiments:
        statistics = next((fold.facts["texts"] for fold in experiment.folds if "texts" in fold.facts), None)
        if statistics:
            limit = experiment.settings["encoder"]["max_doc_tokens"]
            documents = f"{statistics['documents_cut']:,} of {statistics['documents']:,} at {limit}"
            shares = (
                percent(statistics["documents_cut"] / max(1, statistics["documents"])),
                percent(statistics["tokens_cut"] / max(1, statistics["tokens"])),
            )
            rows.append([experiment.name, documents, *shares, statistics["queries_cut"]])
    if not rows:
        return Missing("no manifest has statistics of truncated texts")
    return Rows(["run", "documents cut", "of documents", "of all tokens", "queries cut"], rows)
