"""Measures that trec_eval has not, such as ERR, RBP and Compat: ir_measures names and computes them."""

import math
from collections.abc import Sequence

from rerank.errors import UserError
from rerank.trec import ranked
from rerank.types import Measurements, Qrels, Run

GDEVALS_HIGHEST_GRADE = 4


def name_of_other(text: str) -> str | None:
    """The name by which ir_measures computes a measure, or None where it has none that trec_eval has not, or no mean.

    Raises ValueError that says what is missing for a measure that it has.
    """
    import ir_measures
    from ir_measures import providers

    try:
        measure = ir_measures.parse_measure(text)
    except (NameError, ValueError):
        return None
    of_trec_eval = {of.NAME for of in providers.registry["pytrec_eval"].SUPPORTED_MEASURES}
    if measure.NAME in of_trec_eval and not measure.params.keys() & {"judged_only", "gains"}:
        return None
    if not isinstance(measure.aggregator(), ir_measures.measures.base.MeanAgg) or measure.params.get("cutoff", 1) < 1:
        return None
    try:
        by = [provider for provider in providers.registry.values() if provider.supports(measure)]
    except AssertionError:  # a setting that is unknown, or one that is needed
        by = []
    if by and all(provider.NAME == "pyndeval" for provider in by):
        raise ValueError("it measures subtopics, which judgments of query_id, doc_id and relevance do not have")
    if any(provider.is_available() for provider in by):
        return str(measure)
    takes = ", ".join(f"@{name}" if name == measure.AT_PARAM else f"{name}=" for name in measure.SUPPORTED_PARAMS)
    if by:
        raise ValueError(f"ir_measures needs more for it: {by[0].install_instructions()}; or other settings of {takes}")
    raise ValueError(f"ir_measures computes it with other settings; it takes {takes}")


def evaluate_others(judged: Qrels, run: Run, names: Sequence[str]) -> Measurements:
    """The values measure -> query_id -> value, as `evaluate` gives them, by ir_measures.

    It is given the documents in trec_eval's order without a tie, and numbers as query ids, since gdeval, which computes
    ERR to five decimals, knows no others. A query without a value, or whose value is no number, counts 0. Raises
    UserError for a grade that gdeval does not take.
    """
    import ir_measures

    measures = {name: ir_measures.parse_measure(name) for name in names}
    if any(measure.NAME == "ERR" for measure in measures.values()):
        for query_id, judgments in judged.items():
            if (grade := max(judgments.values())) > GDEVALS_HIGHEST_GRADE:
                raise UserError(f"query {query_id}: ERR: expected grades up to {GDEVALS_HIGHEST_GRADE}, got {grade}")
    numbers = {query_id: str(number) for number, query_id in enumerate(judged, 1)}
    qrels = {numbers[query_id]: judgments for query_id, judgments in judged.items()}
    orders = {
        numbers[query_id]: {doc_id: -float(rank) for rank, doc_id in enumerate(ranked(scores))}
        for query_id, scores in run.items()
    }
    found = {
        (str(of.measure), of.query_id): float(of.value)
        for of in ir_measures.iter_calc(measures.values(), qrels, orders)
        if math.isfinite(of.value)
    }
    return {
        name: {query_id: found.get((str(measure), numbers[query_id]), 0.0) for query_id in judged}
        for name, measure in measures.items()
    }
