"""Fusion of a re-ranker's scores with the first stage's: s = w * model + (1 - w) * first."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate

if TYPE_CHECKING:  # imported by the functions, so that `import rerank.evaluation` is fast
    import numpy as np

GRID = tuple(step / 20 for step in range(21))
"""The weights of the model that `tune_weight` tries: 0 (the first stage alone), 0.05, … 1 (the model alone)."""

TIE = 1e-12  # smaller differences of means are rounding: the order in which the values are summed must not choose


def fuse(model: Run, first: Run, weight: float | Mapping[str, float] = 0.7) -> Run:
    """Returns the fused ranking of every query that either run has.

    `weight` is that of `model`, from 0 to 1, or query_id -> weight, whose queries alone are fused. Both runs' scores of
    a query are min-max scaled to [0, 1] over their documents, so a document that is in one run alone has the lowest
    scaled score, 0, in the other; a run whose scores are all equal has no influence. Documents with equal fused scores
    are in the order of `first`. The scores of the result are n, n - 1, … 1 for n documents, since float32 would make
    ties of fused scores that differ a little. Raises ValueError for a weight outside [0, 1].

    >>> model, first = {"q": {"a": 3.0, "b": 1.0, "c": 2.0}}, {"q": {"a": 10.0, "b": 30.0, "c": 20.0}}
    >>> fuse(model, first, weight=0.2)
    {'q': {'b': 3.0, 'c': 2.0, 'a': 1.0}}
    """
    if not isinstance(weight, Mapping):
        weight = dict.fromkeys({**first, **model}, weight)
    outside = next((value for value in weight.values() if not 0 <= value <= 1), None)
    if outside is not None:
        raise ValueError(f"weight: expected 0 to 1, got {outside}")
    queries = [query_id for query_id in weight if query_id in model or query_id in first]
    return {q: _fuse_scores(*_scaled_scores(model.get(q, {}), first.get(q, {})), weight[q]) for q in queries}


def tune_weight(model: Run, first: Run, qrels: Qrels, measure: str = "nDCG@20") -> float:
    """The weight of GRID with the highest mean of `measure` over the judged queries of `qrels`.

    The smallest of equally good weights. Pass the judgments of validation queries: a query's own judgments must not
    choose its weight. A query that both runs lack counts 0 for every weight.

    >>> qrels = {"q": {"a": 1}}
    >>> tune_weight({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1.0, "b": 2.0}}, qrels, "P@1")
    0.55
    """
    scaled = {q: _scaled_scores(model.get(q, {}), first.get(q, {})) for q in qrels if q in model or q in first}
    best, highest = GRID[0], -math.inf
    for weight in GRID:
        run = {query_id: _fuse_scores(*of_query, weight) for query_id, of_query in scaled.items()}
        (values,) = evaluate(qrels, run, [measure]).values()
        mean = math.fsum(values.values()) / len(values)
        if mean > highest + TIE:
            best, highest = weight, mean
    return best


def _scaled_scores(model: dict[str, float], first: dict[str, float]) -> tuple[list[str], "np.ndarray", "np.ndarray"]:
    """The documents of both runs in the order that decides ties, and their scaled scores in `model` and `first`."""
    import numpy as np

    doc_ids = sorted(model.keys() | first.keys(), reverse=True)
    model_scores, first_scores = _scale(model, doc_ids), _scale(first, doc_ids)
    order = np.argsort(-first_scores, kind="stable")
    return [doc_ids[i] for i in order], model_scores[order], first_scores[order]


def _scale(scores: dict[str, float], doc_ids: list[str]) -> "np.ndarray":
    import numpy as np

    if not scores:
        return np.zeros(len(doc_ids))
    lowest = min(scores.values())
    # In float32, as trec_eval compares scores: its ties are ties here.
    values = np.array([scores.get(doc_id, lowest) for doc_id in doc_ids], dtype=np.float32).astype(np.float64)
    values -= values.min()
    return values / (values.max() or 1.0)


def _fuse_scores(
    doc_ids: list[str], model_scores: "np.ndarray", first_scores: "np.ndarray", weight: float
) -> dict[str, float]:
    import numpy as np

    order = np.argsort(-(weight * model_scores + (1 - weight) * first_scores), kind="stable")
    return {doc_ids[i]: float(len(doc_ids) - rank) for rank, i in enumerate(order)}
