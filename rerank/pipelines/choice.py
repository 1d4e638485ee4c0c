"""Which stage answers: the best on queries that taught it nothing; a cross-encoder must be clearly ahead."""

import math
from collections.abc import Collection, Mapping
from statistics import fmean, stdev

Values = Mapping[str, float]
"""query_id -> the value of a measure."""


def choose(values: Mapping[str, Values], costly: Collection[str] = ()) -> str:
    """The stage with the best mean; of equal ones, the first.

    `values` are name -> the values of its ranking by query, in the order of the stages. A stage of `costly`, one with a
    cross-encoder, takes many times as long for a query: it is taken only if it is ahead of the best of the others by
    more than one standard error of the mean difference, over the queries that both have.
    """
    cheap = {name: fmean(of.values()) for name, of in values.items() if name not in costly}
    chosen = max(cheap, key=cheap.__getitem__) if cheap else next(iter(values))
    for name, of in values.items():
        if name in costly and is_ahead(of, values[chosen]):
            chosen = name
    return chosen


def is_ahead(first: Values, second: Values) -> bool:
    """Whether the mean difference, over the queries that both have, is above its standard error."""
    differences = [first[query_id] - second[query_id] for query_id in first if query_id in second]
    if not differences:
        return False
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return fmean(differences) > error
