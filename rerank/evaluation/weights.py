"""Tunes the weights of a fusion, for the stage `fusion` and `rerank fuse`."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

import numpy as np

from rerank.data.given import given_qrels, given_runs
from rerank.data.trec import examples
from rerank.data.types import Candidates, Judgments, Qrels, Run
from rerank.evaluation.evaluate import evaluate, values_of
from rerank.evaluation.fusion import Weights, scaled_scores, weighted_sums
from rerank.evaluation.measures import measure_name
from rerank.utils.errors import UserError
from rerank.utils.progress import log, progress

MEASURE = "nDCG@20"
"""The default measure for tuning weights."""
STEPS = 20  # grid steps of a weight of two runs: 0.05
STEPS_OF_SEVERAL = 10  # grid steps of a weight of more runs: 0.1
MOST_TUNED = 6  # largest number of runs whose weights are tuned: 3,003 combinations
MOST_QUERIES = 500  # largest number of queries for tuning: more take longer and choose no better
ERRORS = 1.5  # standard errors of a lead: with 1.0, ten judged queries often choose by chance
TIE = 1e-12  # smaller differences of means are rounding, which must not decide

Values = Mapping[str, float]
"""query_id -> value of a measure."""


def tune_weights(runs: Sequence[Run], qrels: Qrels, measure: str = MEASURE) -> Weights:
    """The weights nearest to equal weights whose mean of `measure` is within half a standard error of the best mean.

    So few queries give almost equal weights. The grid has equal weights and all combinations with the sum 1, in steps
    of 0.05 for two runs and 0.1 for more. The means and the standard error of the best one are over at most
    MOST_QUERIES judged queries of `qrels`. Pass the judgments of validation queries, because a query's own judgments
    must not choose its weights. A query that all runs lack counts 0 for every combination. Raises UserError if there is
    no run, or more than MOST_TUNED.

    >>> qrels = {"q": {"a": 1}}
    >>> tune_weights([{"q": {"a": 1.0, "b": 2.0}}, {"q": {"a": 2.0, "b": 1.0}}], qrels, "P@1")
    (0.45, 0.55)
    """
    runs, qrels = given_runs(runs), given_qrels(qrels)
    if not 1 <= len(runs) <= MOST_TUNED:
        raise UserError(
            f"fusion: the weights of 1 to {MOST_TUNED} runs can be tuned, got {len(runs)}; give the weights, or fuse "
            "by reciprocal rank"
        )
    judged = sorted(query_id for query_id, grades in qrels.items() if grades)
    used = {query_id: qrels[query_id] for query_id in some_queries(judged)}
    scaled = {query_id: scaled_scores(runs, query_id) for query_id in used if any(query_id in run for run in runs)}
    grid = [(1 / len(runs),) * len(runs), *weights_of_grid(len(runs))]
    family, _, depth = measure_name(measure).partition("@")
    reads_cutoff = family in ("nDCG", "P", "R", "RR", "AP", "Success") and depth.isdecimal()
    cutoff = int(depth) if reads_cutoff else None  # the measure ignores documents below the cut-off
    values = []
    for weights in progress(grid, len(grid), "tuning weights"):
        fused = {}
        for query_id, (doc_ids, scores) in scaled.items():
            order = (-weighted_sums(scores, weights)).argsort(kind="stable")[:cutoff]
            fused[query_id] = {doc_ids[i]: -float(rank) for rank, i in enumerate(order.tolist())}
        (measured,) = evaluate(used, fused, [measure]).values()
        values.append(list(measured.values()))
    good = [grid[place] for place in almost_best(values)]
    return min(good, key=lambda weights: sum((weight - 1 / len(runs)) ** 2 for weight in weights))


def almost_best(values: Sequence[Sequence[float]]) -> list[int]:
    """The indices of the settings whose mean over the queries is within half a standard error of the best mean.

    >>> almost_best([[0.5, 0.7], [0.4, 0.7], [0.1, 0.2]])
    [0, 1]
    """
    means = [fmean(row) for row in values]
    best = max(range(len(values)), key=means.__getitem__)
    error = stdev(values[best]) / math.sqrt(len(values[best])) if len(values[best]) > 1 else 0.0
    return [place for place, mean in enumerate(means) if mean >= means[best] - error / 2 - TIE]


def some_queries(query_ids: Sequence[str]) -> Sequence[str]:
    """At most MOST_QUERIES of the queries, at equal distances."""
    return query_ids[:: -(-len(query_ids) // MOST_QUERIES) or 1]


def with_added(found: Candidates, added: np.ndarray, weight: float) -> dict[str, float]:
    """doc_id -> first-stage score of a candidate plus `weight` times its value in `added`, (candidates,)."""
    return dict(zip(found.doc_ids, (np.array(found.first_scores) + weight * added).tolist(), strict=True))


def values_by_weight(
    lists: Sequence[Candidates], added: Sequence[np.ndarray], weights: Iterable[float], qrels: Judgments
) -> list[Values]:
    """For each weight, query_id -> value of MEASURE with the scores of `with_added`."""
    pairs = list(zip(lists, added, strict=True))
    runs = ({found.query_id: with_added(found, values, weight) for found, values in pairs} for weight in weights)
    return [values_of(run, qrels, list(run), MEASURE) for run in runs]


def is_ahead(first: Values, second: Values) -> bool:
    """Whether the mean difference over the common queries is above ERRORS standard errors."""
    differences = [first[query_id] - second[query_id] for query_id in first if query_id in second]
    if not differences:
        return False
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return fmean(differences) > ERRORS * error


def weights_of_grid(runs: int) -> list[Weights]:
    """The grid of weights, by descending weight of the first run.

    >>> weights_of_grid(3)[:3]
    [(1.0, 0.0, 0.0), (0.9, 0.1, 0.0), (0.9, 0.0, 0.1)]
    """
    steps = STEPS if runs == 2 else STEPS_OF_SEVERAL
    first = (counts for counts in itertools.product(range(steps, -1, -1), repeat=runs - 1) if sum(counts) <= steps)
    return [tuple(count / steps for count in (*counts, steps - sum(counts))) for counts in first]


def tune_on(runs: Mapping[str, Run], qrels: Judgments, measure: str, queries: str) -> Weights:
    """Tunes the weights of runs by name, and logs them.

    `queries` describes the queries of `qrels`, such as "validation queries of fold 1". Raises UserError if no query is
    judged, if a run has none of the judged queries, and as `tune_weights`.
    """
    judged = {query_id: grades for query_id, grades in qrels.items() if grades}
    if not judged:
        raise UserError(f"fusion: none of the {queries} is judged: there is nothing to tune on")
    if lacking := next((name for name, run in runs.items() if run.keys().isdisjoint(judged)), None):
        raise UserError(
            f"{lacking}: has none of the {len(judged)} judged {queries} ({examples(judged)}), on which the weights are "
            "tuned; expected a run of all queries"
        )
    weights = tune_weights(list(runs.values()), judged, measure)
    shown = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(runs, weights, strict=True))
    log.info(f"weights by {measure} on the {len(judged)} judged {queries}: {shown}")
    return weights
