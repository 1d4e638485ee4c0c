"""Which stage answers: the cheapest whose ranking is as good as the best, on queries that taught it nothing."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from rerank.data.types import Judgments, Run
from rerank.evaluation.evaluate import evaluate

Values = Mapping[str, float]
"""query_id -> the value of a measure."""


def choose(values: Mapping[str, Values]) -> str:
    """The first stage whose mean is at most one standard error below the best one's.

    `values` are name -> the values of its ranking by query, in the order of the stages, of which a later one costs
    more. The standard error is that of the mean difference to the best stage over the queries that both have. A stage
    with fewer queries than those before it is one that was fitted once a fold: it is taken only if it is ahead of the
    stage that would be chosen without it by more than one standard error.
    """
    queries = max(map(len, values.values()))
    whole = {name: of for name, of in values.items() if len(of) == queries}
    best = max(whole, key=lambda name: fmean(whole[name].values()))
    chosen = next(name for name in whole if name == best or not is_ahead(whole[best], whole[name]))
    for name, of in values.items():
        if name not in whole and is_ahead(of, values[chosen]):
            chosen = name
    return chosen


def is_ahead(first: Values, second: Values) -> bool:
    """Whether the mean difference, over the queries that both have, is above its standard error."""
    differences = [first[query_id] - second[query_id] for query_id in first if query_id in second]
    if not differences:
        return False
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return fmean(differences) > error


def values_of(run: Run, qrels: Judgments, query_ids: Sequence[str], measure: str) -> dict[str, float]:
    """query_id -> the value of a run for those of the queries that are judged; 0 for one that the run does not have."""
    judged = {query_id: qrels[query_id] for query_id in query_ids if qrels.get(query_id)}
    if run.keys().isdisjoint(judged):
        return dict.fromkeys(judged, 0.0)
    (values,) = evaluate(judged, run, [measure]).values()
    return values
