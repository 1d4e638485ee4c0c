"""Fusion by interpolation: s = sum of weight * scaled score over the runs, with weights given or tuned.

The scores of a query are min-max scaled to [0, 1], run by run, as in ranx and in Pyserini's hybrid search.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.fusion_of_ranks import add, ordered_scores
from rerank.evaluation.measures import measure_name
from rerank.utils.progress import progress

if TYPE_CHECKING:  # imported by the functions, so that `import rerank.evaluation` is fast
    import numpy as np

Weights = tuple[float, ...]
"""A weight for each run, in the order of the runs."""

STEPS, STEPS_OF_SEVERAL = 20, 10
"""The parts into which the weights of two runs, and of more, are cut to be tuned: their sum is 1."""

MOST_TUNED = 6
"""The runs whose weights can be tuned: 3,003 combinations."""

TIE = 1e-12  # smaller differences of means are rounding: the order in which the values are summed must not choose


def fuse_scores(runs: Sequence[Run], weights: Weights | Mapping[str, Weights]) -> Run:
    """The fused ranking of every query that a run has, by the weighted sum of its scaled scores.

    `weights` are those of all queries, or query_id -> weights, whose queries alone are fused. The scores of a query are
    min-max scaled over the documents of each run, in float32, as trec_eval compares them. A document that a run does
    not have gets 0 from it, as does every document of a run whose scores are all equal. Documents with equal sums are
    in the order of the first run, then by doc_id, descending. The scores are these sums as float32 values that strictly
    decrease. Raises ValueError if there is not one weight for each run, a weight is negative or all are 0.

    >>> runs = [{"q": {"a": 10.0, "b": 30.0, "c": 20.0}}, {"q": {"a": 3.0, "b": 1.0, "c": 2.0}}]
    >>> fuse_scores(runs, (0.75, 0.25))
    {'q': {'b': 0.75, 'c': 0.5, 'a': 0.25}}
    """
    if not isinstance(weights, Mapping):
        weights = dict.fromkeys((query_id for run in runs for query_id in run), weights)
    for of_query in dict.fromkeys(weights.values()):
        check_weights(of_query, len(runs))
    queries = [query_id for query_id in weights if any(query_id in run for run in runs)]
    return {query_id: _fuse_query(*scaled_scores(runs, query_id), weights[query_id]) for query_id in queries}


def check_weights(weights: Sequence[float], runs: int) -> None:
    """Raises ValueError unless there is a weight for each run, all finite, none negative and one above 0."""
    if len(weights) != runs:
        raise ValueError(f"expected a weight for each of the {runs} runs, got {len(weights)}")
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(f"expected weights of 0 or more, one of them above 0, got {' '.join(map(str, weights))}")


def tune_weights(runs: Sequence[Run], qrels: Qrels, measure: str = "nDCG@20") -> Weights:
    """The weights with the highest mean of `measure` over the judged queries of `qrels`; their sum is 1.

    All combinations are tried in steps of 0.05 for two runs and of 0.1 for more. Of equally good ones, that which gives
    the first run most, then the second, and so on. Pass the judgments of validation queries: a query's own judgments
    must not choose its weights. A query that all runs lack counts 0 for every combination.

    >>> qrels = {"q": {"a": 1}}
    >>> tune_weights([{"q": {"a": 1.0, "b": 2.0}}, {"q": {"a": 2.0, "b": 1.0}}], qrels, "P@1")
    (0.45, 0.55)
    """
    scaled = {q: scaled_scores(runs, q) for q in qrels if any(q in run for run in runs)}
    grid, cutoff = list(weight_grid(len(runs))), _cutoff(measure)
    best, highest = grid[0], -math.inf
    for weights in progress(grid, len(grid), "tuning weights"):
        run = {query_id: _places(*of_query, weights, cutoff) for query_id, of_query in scaled.items()}
        (values,) = evaluate(qrels, run, [measure]).values()
        mean = math.fsum(values.values()) / len(values)
        if mean > highest + TIE:
            best, highest = weights, mean
    return best


def weight_grid(runs: int) -> Iterator[Weights]:
    """The combinations of weights that are tried, the first run's weight descending.

    >>> [weights for weights in weight_grid(3)][:3]
    [(1.0, 0.0, 0.0), (0.9, 0.1, 0.0), (0.9, 0.0, 0.1)]
    """
    steps = STEPS if runs == 2 else STEPS_OF_SEVERAL
    for rest in itertools.product(range(steps, -1, -1), repeat=runs - 1):
        if sum(rest) <= steps:
            yield tuple(part / steps for part in (*rest, steps - sum(rest)))


def scaled_scores(runs: Sequence[Run], query_id: str) -> tuple[list[str], "np.ndarray"]:
    """The documents of a query in the order that decides ties, and their (runs, documents) scaled scores."""
    import numpy as np

    of_runs = [run.get(query_id, {}) for run in runs]
    doc_ids = sorted(set().union(*of_runs), reverse=True)
    scores = np.stack([_scale(of_run, doc_ids) for of_run in of_runs])
    order = np.argsort(-scores[0], kind="stable")
    return [doc_ids[i] for i in order], scores[:, order]


def _scale(scores: dict[str, float], doc_ids: list[str]) -> "np.ndarray":
    import numpy as np

    if not scores:
        return np.zeros(len(doc_ids))
    lowest = min(scores.values())
    # In float32, as trec_eval compares scores: its ties are ties here.
    values = np.array([scores.get(doc_id, lowest) for doc_id in doc_ids], dtype=np.float32).astype(np.float64)
    values -= values.min()
    return values / (values.max() or 1.0)


def _fuse_query(doc_ids: list[str], scores: "np.ndarray", weights: Weights) -> dict[str, float]:
    return ordered_scores(doc_ids, _sums(scores, weights))


def _cutoff(measure: str) -> int | None:
    """How many documents of a query the measure reads, so that no others are evaluated; None for all."""
    family, _, cutoff = measure_name(measure).partition("@")
    return int(cutoff) if family in ("nDCG", "P", "R", "RR", "AP", "Success") and cutoff.isdecimal() else None


def _places(doc_ids: list[str], scores: "np.ndarray", weights: Weights, cutoff: int | None) -> dict[str, float]:
    """The first `cutoff` documents of the ranking of `_fuse_query`, with the scores n, n - 1, … for n documents."""
    order = (-_sums(scores, weights)).argsort(kind="stable")[:cutoff]
    return {doc_ids[i]: float(len(doc_ids) - rank) for rank, i in enumerate(order.tolist())}


def _sums(scores: "np.ndarray", weights: Weights) -> "np.ndarray":
    import numpy as np

    return add(np.array(weights)[:, None] * scores)
