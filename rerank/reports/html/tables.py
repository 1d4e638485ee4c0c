"""The page's tables: upper bounds of re-ranking, time and memory, and settings."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES
from rerank.reports.charts.depth import common_queries, expect_re_rankings, ideal
from rerank.reports.html.parts import Missing, Rows
from rerank.runs.experiment_results import ExperimentResults, FoldResults
from rerank.runs.results import Compared, Results


def upper_bound_table(results: Results, experiments: Sequence[Compared]) -> Rows:
    """A row per measure of the summary, over the queries common to all experiments.

    Before re-ranking, each of these experiments, which have the same first stage, and the ideal re-ranking: the best
    possible one of the candidates.
    """
    expect_re_rankings(results)
    query_ids, of_all = common_queries(results), experiments[0].candidates()
    qrels, candidates = results.judged(query_ids), {q: of_all.get(q, {}) for q in query_ids}
    first, best = _means(qrels, candidates), _means(qrels, ideal(candidates, qrels))
    reached = [_means(qrels, experiment.run) for experiment in experiments]
    rows = []
    for m in DEFAULT_MEASURES:
        cells = [_reached(first[m], best[m], means[m]) for means in reached]
        rows.append([m, f"{first[m]:.4f}", *cells, f"{best[m]:.4f}"])
    name = results.first_stage_names[experiments[0].name]
    without = sum(not any(grades.get(doc_id, 0) > 0 for doc_id in candidates[q]) for q, grades in qrels.items())
    note = (
        f"Over {len(qrels)} queries, of which {without} have no relevant candidate: no re-ranking can help them. The "
        f"ideal re-ranking sorts the candidates of {name} by their judgments. Next to a mean: how much of the gap "
        f"between {name} and the ideal re-ranking it closes."
    )
    return Rows(["mean", name, *(experiment.name for experiment in experiments), "ideal re-ranking"], rows, note)


def _reached(first: float, best: float, value: float) -> str:
    closed = f"{100 * (value - first) / (best - first):.1f} %" if best > first else "–"
    return f"{value:.4f} ({closed})"


def _means(qrels: Qrels, run: Run) -> dict[str, float]:
    return {name: fmean(values.values()) for name, values in evaluate(qrels, run).items()}


def cost_table(experiments: Sequence[ExperimentResults]) -> Rows | Missing:
    """A row per finished fold: epochs, time, speed and memory, from the log and the manifest."""
    rows = [
        [f"{experiment.name}, fold {fold.name}", *_cost(fold).values()]
        for experiment in experiments
        for fold in experiment.folds
        if fold.facts
    ]
    if not rows:
        return Missing("no fold has a manifest with its time and memory")
    return Rows(["run", *_cost(experiments[0].folds[0])], rows)


def _cost(fold: FoldResults) -> dict[str, object]:
    facts = fold.facts
    seconds, memory, precision = facts.get("seconds"), facts.get("peak_memory"), facts.get("precision", "–")
    return {
        "epochs": facts.get("epochs", "–"),
        "kept": facts.get("best_epoch", "–"),
        "minutes": "–" if seconds is None else f"{seconds / 60:.1f}",
        "tokens/s": _rate(fold.history, "tokens"),
        "documents/s": _rate(fold.history, "documents"),
        "peak memory": f"{memory / 2**30:.2f} GiB" if memory else "–",
        "device": facts.get("device_name", facts.get("device", "–")),
        "precision": "float32" if precision == "no" else precision,
        "processes": facts.get("processes", "–"),
    }


def _rate(history: list[dict[str, Any]], what: str) -> str:
    """Units per second of training, over all epochs that recorded them."""
    timed = [record for record in history if what in record and "seconds" in record]
    seconds = sum(record["seconds"] for record in timed)
    return f"{sum(record[what] for record in timed) / seconds:,.0f}" if seconds else "–"


def settings_table(experiments: Sequence[ExperimentResults]) -> Rows:
    """The settings, an experiment per column; those that differ come first."""
    flat = [
        {f"{section}.{key}": value for section, values in e.settings.items() for key, value in values.items()}
        for e in experiments
    ]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = [[key, *(str(settings.get(key, "")) for settings in flat)] for key in keys]
    return Rows(["setting", *(e.name for e in experiments)], sorted(rows, key=lambda row: len(set(row[1:])) == 1))
