"""Which stage answers: the last one, unless another is clearly ahead of it on queries that taught both nothing."""

import math
from collections.abc import Collection, Mapping
from statistics import fmean, stdev

Values = Mapping[str, float]
"""query_id -> the value of a measure."""


def choose(values: Mapping[str, Values], costly: Collection[str] = ()) -> str:
    """The last stage, unless one of the others is ahead of it by more than a standard error; then the best of these.

    `values` are name -> the values of its ranking by query, in the order of the stages; of equal stages the first is
    taken. The differences are those over the queries that both have. So chance does not choose among stages that are
    alike, as it does with the best mean of a few queries. A stage of `costly`, one with a cross-encoder, takes many
    times as long for a query: it is taken only if it is ahead of the best of the others.
    """
    cheap = {name: of for name, of in values.items() if name not in costly}
    chosen = next(iter(values))
    if cheap:
        last = list(cheap.values())[-1]
        good = {name: fmean(of.values()) for name, of in cheap.items() if of == last or is_ahead(of, last)}
        chosen = max(good, key=good.__getitem__)
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
