"""Measures of a run, query by query, by pytrec_eval, and by ir_measures what it lacks: no metric is written here."""

from collections import defaultdict
from collections.abc import Iterable

from rerank.data.trec import check_common, check_scores, ranked
from rerank.errors import UserError
from rerank.evaluation.measures import MEASURES, Measure, evaluate_others, parse
from rerank.types import Measurements, Qrels, Run

HIGHEST_GRADE = 16  # trec_eval keeps a counter for every gain up to the highest, and 2^16 of them are quick enough


def evaluate(qrels: Qrels, run: Run, measures: Iterable[str] = MEASURES) -> Measurements:
    """The values measure (by its name, see `measure_names`) -> query_id -> value, for every query with a judgment.

    A query that the run lacks counts 0 (see `missing`); trec_eval does so with -c. A query that has judgments but no
    relevant document counts 0 too: trec_eval keeps it in the mean. Queries of the run without a judgment have no value.
    Ties, float32 scores and graded gains (rel, not 2^rel - 1) are trec_eval's. Raises UserError for unknown measures,
    for a score that is no finite float32, and where the run and the judgments share no query.
    """
    parsed = parse(measures)
    judged = {query_id: judgments for query_id, judgments in qrels.items() if judgments}
    check_common(run, judged)
    found = {query_id: run[query_id] for query_id in judged if run.get(query_id)}
    check_scores(found)
    passes: dict[tuple[int, str, int], list[Measure]] = defaultdict(list)  # pytrec_eval has one `rel` at a time
    for measure in parsed:
        if measure.trec_name:
            passes[measure.rel, measure.gains, measure.cut].append(measure)
    others = [measure.name for measure in parsed if not measure.trec_name]
    values = evaluate_others(judged, found, others) if others else {}
    for (rel, gains, cut), group in passes.items():
        by_query = _evaluated(judged, found, {measure.trec_name for measure in group}, rel, gains, cut)
        for measure in group:
            values[measure.name] = {q: by_query[q][measure.trec_name] if q in by_query else 0.0 for q in judged}
    return {measure.name: values[measure.name] for measure in parsed}


def missing(qrels: Qrels, run: Run) -> list[str]:
    """The query ids with judgments for which the run has no document: each counts 0 in every measure."""
    return [query_id for query_id, judgments in qrels.items() if judgments and not run.get(query_id)]


def _evaluated(judged: Qrels, run: Run, names: set[str], rel: int, gains: str, cut: int) -> dict[str, dict[str, float]]:
    import pytrec_eval

    judged = {query_id: _with_gains(query_id, judgments, gains) for query_id, judgments in judged.items()}
    if cut:
        run = {q: {doc_id: scores[doc_id] for doc_id in ranked(scores)[:cut]} for q, scores in run.items()}
    values: dict[str, dict[str, float]] = pytrec_eval.RelevanceEvaluator(judged, names, rel).evaluate(run)
    return values


def _with_gains(query_id: str, judgments: dict[str, int], gains: str) -> dict[str, int]:
    """The judgments of a query as pytrec_eval is to see them."""
    if gains == "judged":
        return dict.fromkeys(judgments, 1)
    highest = max(judgments.values())
    if highest < -1:  # a query judged junk throughout, on which pytrec_eval 0.5 reads and writes where it must not
        return dict.fromkeys(judgments, -1)
    if gains == "exponential":
        if highest > HIGHEST_GRADE:
            raise UserError(f"query {query_id}: gain 2^rel - 1: expected grades up to {HIGHEST_GRADE}, got {highest}")
        return {doc_id: 2**grade - 1 if grade > 0 else grade for doc_id, grade in judgments.items()}
    return judgments
