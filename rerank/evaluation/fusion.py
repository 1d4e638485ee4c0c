"""A re-ranker's scores mixed with the first stage's: s = w * model + (1 - w) * first, w chosen on other topics."""

import math

import numpy as np

from rerank.evaluation.evaluate import evaluate
from rerank.types import Qrels, Run

GRID = tuple(step / 20 for step in range(21))
"""The weights of the model that are tried: 0 (the first stage alone), 0.05, … 1 (the model alone)."""

TIE = 1e-12  # means that differ by less are equal: the sum of the same values in another order must not choose

Sides = tuple[list[str], np.ndarray, np.ndarray]


def interpolate(model: Run, first: Run, weight_of: dict[str, float]) -> Run:
    """The mixed ranking of every query of `weight_of` (query_id -> w from 0 to 1) that either run has.

    Each side's scores of a query are min-max scaled to [0, 1] over its documents, so a document of the first stage that
    the model did not score has the lowest value, 0, on the model's side, and the other way round; a side whose scores
    are all equal says nothing and is 0. Documents whose mixed scores tie stand in the first stage's order. The result
    has scores n, n - 1, … 1 for n documents: what float32 would tie keeps its order.
    """
    queries = [query_id for query_id in weight_of if query_id in model or query_id in first]
    return {q: _mixed(_sides(model.get(q, {}), first.get(q, {})), weight_of[q]) for q in queries}


def tune(model: Run, first: Run, qrels: Qrels, measure: str = "ndcg_cut_20") -> float:
    """The weight of GRID with the highest mean of `measure` (a trec_eval name) over the judged topics of `qrels`.

    The smallest of equally good weights: no more of the model than helps. Give the validation topics' judgments; a
    topic's own must never choose its weight. A topic that both runs lack counts 0 for every weight.
    """
    sides = {q: _sides(model.get(q, {}), first.get(q, {})) for q in qrels if q in model or q in first}
    best, highest = GRID[0], -math.inf
    for weight in GRID:
        run = {query_id: _mixed(of_query, weight) for query_id, of_query in sides.items()}
        values = evaluate(qrels, run, [measure])[measure].values()
        mean = math.fsum(values) / len(values)
        if mean > highest + TIE:
            best, highest = weight, mean
    return best


def _sides(model: dict[str, float], first: dict[str, float]) -> Sides:
    """The documents of both lists in the order that decides ties, and their scaled scores on either side."""
    doc_ids = sorted(model.keys() | first.keys(), reverse=True)
    mine, its = _scaled(model, doc_ids), _scaled(first, doc_ids)
    order = np.argsort(-its, kind="stable")
    return [doc_ids[i] for i in order], mine[order], its[order]


def _scaled(scores: dict[str, float], doc_ids: list[str]) -> np.ndarray:
    if not scores:
        return np.zeros(len(doc_ids))
    lowest = min(scores.values())
    # float32, since trec_eval compares scores as such: what ties there ties here.
    values = np.array([scores.get(doc_id, lowest) for doc_id in doc_ids], dtype=np.float32).astype(np.float64)
    values -= values.min()
    return values / (values.max() or 1.0)


def _mixed(sides: Sides, weight: float) -> dict[str, float]:
    doc_ids, mine, its = sides
    order = np.argsort(-(weight * mine + (1 - weight) * its), kind="stable")
    return {doc_ids[i]: float(len(doc_ids) - place) for place, i in enumerate(order)}
