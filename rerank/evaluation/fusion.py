"""Fusion of runs: by reciprocal rank, or by interpolation with weights that are given or tuned.

Reciprocal rank: s = sum of 1 / (k + rank) over the runs (Cormack, Clarke and Büttcher, SIGIR 2009). Interpolation:
s = sum of weight * scaled score; the scores of a query are min-max scaled to [0, 1], run by run, as in ranx and in
Pyserini's hybrid search.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rerank.data.run_scores import strictly_decreasing
from rerank.data.trec import examples, ranked
from rerank.data.types import Fold, Judgments, Qrels, Run
from rerank.evaluation.choice import TIE, almost_best
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.evaluate_runs import map_to_folds
from rerank.evaluation.measures import measure_name
from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress

if TYPE_CHECKING:  # imported by the functions, so that `import rerank.evaluation` is fast
    import numpy as np

RRF_K = 60.0
"""The k of Cormack et al."""

MEASURE = "nDCG@20"
"""The measure that chooses the weights, unless another is named."""

Weights = tuple[float, ...]
"""A weight for each run, in the order of the runs."""

STEPS, STEPS_OF_SEVERAL = 20, 10
"""The parts into which the weights of two runs, and of more, are cut to be tuned: their sum is 1."""

MOST_TUNED = 6
"""The runs whose weights can be tuned: 3,003 combinations."""


def fuse_ranks(runs: Sequence[Run], k: float = RRF_K) -> Run:
    """The fused ranking of every query that a run has, by the sum of 1 / (`k` + rank) over the runs.

    Ranks begin at 1 and are those of `ranked`. A document adds nothing where a run does not have it. Documents with
    equal sums are in the order of the first run that has one of them. The scores are these sums as float32 values that
    strictly decrease. Raises ValueError for a negative `k`.

    >>> fused = fuse_ranks([{"q": {"a": 3.0, "b": 2.0}}, {"q": {"b": 9.0, "c": 8.0}}], k=1)
    >>> {doc_id: round(score, 4) for doc_id, score in fused["q"].items()}
    {'b': 0.8333, 'a': 0.5, 'c': 0.3333}
    """
    import numpy as np

    if not k >= 0:
        raise ValueError(f"k: expected 0 or more, got {k}")
    fused = {}
    for query_id in queries_of(runs):
        rankings = [ranked(run.get(query_id, {})) for run in runs]
        # In the order that decides ties: the first run's documents, then those that the second one adds, and so on.
        column = {doc_id: i for i, doc_id in enumerate(dict.fromkeys(itertools.chain(*rankings)))}
        parts = np.zeros((len(runs), len(column)))
        for part, ranking in zip(parts, rankings, strict=True):
            part[[column[doc_id] for doc_id in ranking]] = 1 / (k + np.arange(1, len(ranking) + 1))
        fused[query_id] = _decreasing(list(column), _sums(parts, (1.0,) * len(runs)))
    return fused


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
        weights = dict.fromkeys(queries_of(runs), weights)
    for of_query in dict.fromkeys(weights.values()):
        check_weights(of_query, len(runs))
    fused = {}
    for query_id, of_query in weights.items():
        if any(query_id in run for run in runs):
            doc_ids, scores = _scaled_scores(runs, query_id)
            fused[query_id] = _decreasing(doc_ids, _sums(scores, of_query))
    return fused


def place_above(above: Run, below: Run) -> Run:
    """The documents of `above`, and below them the others of `below` in its order, for every query of `below`.

    The scores of `above` stay. Those of the others are moved down by one number for each query, so that the best is 1
    below the lowest of `above`; all strictly decrease as float32.

    >>> place_above({"q": {"a": 5.0, "b": 4.5}}, {"q": {"a": 1.0, "b": 2.0, "c": 0.5, "d": 0.25}})
    {'q': {'a': 5.0, 'b': 4.5, 'c': 3.5, 'd': 3.25}}
    """
    placed: Run = {}
    for query_id, others in below.items():
        scores = above.get(query_id, {})
        rest = [doc_id for doc_id in ranked(others) if doc_id not in scores]
        best = ranked(scores)
        shift = scores[best[-1]] - 1 - others[rest[0]] if best and rest else 0.0
        values = [*(scores[doc_id] for doc_id in best), *(others[doc_id] + shift for doc_id in rest)]
        placed[query_id] = dict(zip([*best, *rest], strictly_decreasing(values, f"query {query_id}"), strict=True))
    return placed


def check_weights(weights: Sequence[float], runs: int) -> None:
    """Raises ValueError unless there is a weight for each run, all finite, none negative and one above 0."""
    if len(weights) != runs:
        raise ValueError(f"expected a weight for each of the {runs} runs, got {len(weights)}")
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(f"expected weights of 0 or more, one of them above 0, got {' '.join(map(str, weights))}")


def tune_weights(runs: Sequence[Run], qrels: Qrels, measure: str = MEASURE) -> Weights:
    """The weights with the highest mean of `measure` over the judged queries of `qrels`; their sum is 1.

    All combinations are tried in steps of 0.05 for two runs and of 0.1 for more. Of equally good ones, that which gives
    the first run most, then the second, and so on. Pass the judgments of validation queries: a query's own judgments
    must not choose its weights. A query that all runs lack counts 0 for every combination.

    >>> qrels = {"q": {"a": 1}}
    >>> tune_weights([{"q": {"a": 1.0, "b": 2.0}}, {"q": {"a": 2.0, "b": 1.0}}], qrels, "P@1")
    (0.45, 0.55)
    """
    best, highest = weights_of_grid(len(runs))[0], -math.inf
    for weights, values in _grid_values(runs, qrels, measure):
        mean = fmean(values.values())
        if mean > highest + TIE:
            best, highest = weights, mean
    return best


def shrunk_weights(runs: Sequence[Run], qrels: Qrels, measure: str = MEASURE) -> Weights:
    """The weights nearest to equal ones whose mean of `measure` is within half a standard error of the best mean.

    The standard error is that of the best mean over the judged queries of `qrels`. So few queries give weights that
    are almost equal. Combinations are those of `tune_weights`, and equal weights.

    >>> qrels = {"q": {"a": 1}}
    >>> shrunk_weights([{"q": {"a": 1.0, "b": 2.0}}, {"q": {"a": 2.0, "b": 1.0}}], qrels, "P@1")
    (0.45, 0.55)
    """
    tried = [(weights, list(values.values())) for weights, values in _grid_values(runs, qrels, measure, equal=True)]
    good = [tried[place][0] for place in almost_best([values for _, values in tried])]
    return min(good, key=lambda weights: sum((weight - 1 / len(runs)) ** 2 for weight in weights))


def _grid_values(
    runs: Sequence[Run], qrels: Qrels, measure: str, equal: bool = False
) -> Iterator[tuple[Weights, dict[str, float]]]:
    """Each combination of weights, and the values of the fused run by query.

    With `equal`, equal weights come first, and no progress is shown.
    """
    scaled = {q: _scaled_scores(runs, q) for q in qrels if any(q in run for run in runs)}
    equals = [(1 / len(runs),) * len(runs)] if equal else []
    grid, cutoff = [*equals, *weights_of_grid(len(runs))], _cutoff(measure)
    for weights in progress(grid, len(grid), "tuning weights", show=not equal):
        run = {}
        for query_id, (doc_ids, scores) in scaled.items():
            order = (-_sums(scores, weights)).argsort(kind="stable")[:cutoff]
            run[query_id] = {doc_ids[i]: -float(rank) for rank, i in enumerate(order.tolist())}
        (values,) = evaluate(qrels, run, [measure]).values()
        yield weights, values


def weights_of_grid(runs: int) -> list[Weights]:
    """The combinations of weights that are tried, the first run's weight descending.

    >>> weights_of_grid(3)[:3]
    [(1.0, 0.0, 0.0), (0.9, 0.1, 0.0), (0.9, 0.0, 0.1)]
    """
    steps = STEPS if runs == 2 else STEPS_OF_SEVERAL
    parts = (rest for rest in itertools.product(range(steps, -1, -1), repeat=runs - 1) if sum(rest) <= steps)
    return [tuple(part / steps for part in (*rest, steps - sum(rest))) for rest in parts]


def tune_by_fold(runs: Mapping[str, Run], qrels: Judgments, folds: Sequence[Fold], measure: str) -> dict[str, Weights]:
    """Fold -> the weights that are best by `measure` on its judged validation queries; `runs` are name -> run.

    The weights are logged. Raises UserError as `tune_on`.
    """
    by_fold = {}
    for fold in folds:
        valid = {query_id: qrels[query_id] for query_id in fold.valid if query_id in qrels}
        by_fold[fold.name] = tune_on(runs, valid, measure, f"validation queries of fold {fold.name}")
    return by_fold


def tune_on(runs: Mapping[str, Run], qrels: Qrels, measure: str, queries: str) -> Weights:
    """The weights that are best by `measure` on the judged queries of `qrels`; `runs` are name -> run.

    The weights are logged. `queries` are the queries in words, such as "validation queries of fold 1". Raises UserError
    if no query is judged, a run has none of them, or there are too many runs.
    """
    judged = {query_id: grades for query_id, grades in qrels.items() if grades}
    if len(runs) > MOST_TUNED:
        raise UserError(
            f"fusion: the weights of {MOST_TUNED} runs at most can be tuned, got {len(runs)}; give the weights, or "
            "fuse by reciprocal rank"
        )
    if not judged:
        raise UserError(f"fusion: none of the {queries} is judged: there is nothing to tune on")
    for name, run in runs.items():
        if run.keys().isdisjoint(judged):
            raise UserError(
                f"{name}: has none of the {len(judged)} judged {queries} ({examples(judged)}), on which the weights "
                "are tuned; expected a run of all queries"
            )
    weights = tune_weights(list(runs.values()), judged, measure)
    shown = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(runs, weights, strict=True))
    log.info(f"weights by {measure} on the {len(judged)} judged {queries}: {shown}")
    return weights


def weights_of_queries(
    query_ids: Sequence[str], folds: Sequence[Fold], by_fold: Mapping[str, Weights], source: str = "folds"
) -> dict[str, Weights]:
    """query_id -> the weights of the fold that tests it; a query that no fold tests has the means over the folds.

    Raises UserError, which names `source`, if two folds test a query.
    """
    fold_of = map_to_folds(folds, source)
    means = tuple(map(fmean, zip(*by_fold.values(), strict=True)))
    return {q: by_fold[fold_of[q]] if q in fold_of else means for q in query_ids}


def check_runs(runs: Mapping[str, Run]) -> None:
    """Raises UserError for a run that has no query in common with the others; logs runs without a common document."""
    for name, run in runs.items():
        others = [of_other for other, of_other in runs.items() if other != name]
        queries = queries_of(others)
        if run.keys().isdisjoint(queries):
            raise UserError(
                f"{name}: has no query in common with the other runs: got queries {examples(run)} and "
                f"{examples(sorted(queries))}; expected runs of the same collection"
            )
        if all(run[q].keys().isdisjoint(other[q]) for other in others for q in other if q in run):
            log.info(f"{name}: has no document in common with the other runs in any query; are the ids the same?")


def queries_of(runs: Sequence[Run]) -> list[str]:
    """The queries that a run has, in the order of the runs."""
    return list(dict.fromkeys(query_id for run in runs for query_id in run))


def _scaled_scores(runs: Sequence[Run], query_id: str) -> tuple[list[str], "np.ndarray"]:
    """The documents of a query in the order that decides ties, and their (runs, documents) scaled scores."""
    import numpy as np

    of_runs = [run.get(query_id, {}) for run in runs]
    doc_ids = sorted(set().union(*of_runs), reverse=True)
    scores = np.zeros((len(runs), len(doc_ids)))
    for row, of_run in zip(scores, of_runs, strict=True):
        lowest = min(of_run.values(), default=0.0)
        # In float32, as trec_eval compares scores: its ties are ties here.
        row[:] = np.array([of_run.get(doc_id, lowest) for doc_id in doc_ids], dtype=np.float32)
        row -= row.min()
        row /= row.max() or 1.0
    order = np.argsort(-scores[0], kind="stable")
    return [doc_ids[i] for i in order], scores[:, order]


def _sums(scores: "np.ndarray", weights: Weights) -> "np.ndarray":
    """The weighted sums of (runs, documents) scores over the runs, whose order does not change the rounding."""
    import numpy as np

    sums: np.ndarray = np.sort(np.array(weights)[:, None] * scores, axis=0).sum(axis=0)
    return sums


def _decreasing(doc_ids: Sequence[str], scores: "np.ndarray") -> dict[str, float]:
    """The documents by descending score, equal ones in their order, with float32 scores that strictly decrease."""
    order = (-scores).argsort(kind="stable")
    values = strictly_decreasing(scores[order].tolist(), "fusion")
    return {doc_ids[i]: value for i, value in zip(order.tolist(), values, strict=True)}


def _cutoff(measure: str) -> int | None:
    """How many documents of a query the measure reads, so that no others are evaluated; None for all."""
    family, _, cutoff = measure_name(measure).partition("@")
    return int(cutoff) if family in ("nDCG", "P", "R", "RR", "AP", "Success") and cutoff.isdecimal() else None
