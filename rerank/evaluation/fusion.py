"""Fusion of a re-ranker's scores with the first stage's: s = w * model + (1 - w) * first."""

from collections.abc import Mapping

from rerank.data.types import Qrels, Run
from rerank.evaluation.fusion_of_scores import fuse_scores, tune_weights, weight_grid

GRID = tuple(weights[1] for weights in weight_grid(2))
"""The weights of the model that `tune_weight` tries: 0 (the first stage alone), 0.05, … 1 (the model alone)."""


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
    fused = fuse_scores([first, model], {query_id: (1 - of_query, of_query) for query_id, of_query in weight.items()})
    return {
        query_id: {doc_id: float(len(scores) - rank) for rank, doc_id in enumerate(scores)}
        for query_id, scores in fused.items()
    }


def tune_weight(model: Run, first: Run, qrels: Qrels, measure: str = "nDCG@20") -> float:
    """The weight of GRID with the highest mean of `measure` over the judged queries of `qrels`.

    The smallest of equally good weights. Pass the judgments of validation queries: a query's own judgments must not
    choose its weight. A query that both runs lack counts 0 for every weight.

    >>> qrels = {"q": {"a": 1}}
    >>> tune_weight({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1.0, "b": 2.0}}, qrels, "P@1")
    0.55
    """
    return tune_weights([first, model], qrels, measure)[1]
