"""How far re-ranking moved documents, how many are judged, and what was truncated."""

from collections.abc import Sequence

from rerank.data.trec import ranked
from rerank.reports.charts.depth import judged
from rerank.reports.html.parts import Missing, Rows, percent
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import Compared, Results

JUDGED_AT = (1, 5, 10, 20, 50, 100, 150)


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
