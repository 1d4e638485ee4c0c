"""Which stage answers: the last one, unless another is clearly ahead of it on queries that taught both nothing."""

from collections.abc import Collection, Mapping
from statistics import fmean

from rerank.evaluation.weights import Values, is_ahead


def choose(values: Mapping[str, Values], costly: Collection[str] = ()) -> str:
    """The last stage, unless one of the others is ahead of it by more than 1.5 standard errors; then the best of these.

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
