"""Evaluates a run query by query, with pytrec_eval where it has the measure and ir_measures where not."""

from collections import defaultdict
from collections.abc import Iterable

from rerank.data.trec import check_common, check_scores, ranked
from rerank.evaluation.measures import DEFAULT_MEASURES, Measure, parse_measures
from rerank.evaluation.third_party import import_package
from rerank.types import Measurements, Qrels, Run
from rerank.utils.errors import UserError

HIGHEST_GRADE = 16  # trec_eval has a counter for every gain up to the highest, and 2^16 of them are fast enough


def evaluate(qrels: Qrels, run: Run, measures: Iterable[str] = DEFAULT_MEASURES) -> Measurements:
    """Returns measure -> query_id -> value, for every query with a judgment.

    The measures have ir_measures' names, whatever names they are given by (see `measure_names`). As with trec_eval's
    option -c, a judged query that the run does not have counts 0 (see `missing_queries`). A query with judgments but
    without a relevant document counts 0 too. Queries of the run without a judgment have no value. Ties, float32 scores
    and graded gains (rel, not 2^rel - 1) are trec_eval's. Raises UserError for unknown measures, for a score that is
    not a finite float32, and if the run and the judgments have no query in common.

    >>> qrels = {"q1": {"d1": 1, "d2": 0, "d3": 2}, "q2": {"d1": 1}}
    >>> evaluate(qrels, {"q1": {"d2": 2.5, "d3": 1.5}}, ["P@2", "recip_rank"])
    {'P@2': {'q1': 0.5, 'q2': 0.0}, 'RR': {'q1': 0.5, 'q2': 0.0}}
    """
    parsed = parse_measures(measures)
    judged = {query_id: judgments for query_id, judgments in qrels.items() if judgments}
    check_common(run, judged)
    rankings = {query_id: run[query_id] for query_id in judged if run.get(query_id)}
    check_scores(rankings)
    passes: dict[tuple[int, str, int], list[Measure]] = defaultdict(list)  # pytrec_eval has one `rel` per pass
    for measure in parsed:
        if measure.trec_name:
            passes[measure.rel, measure.gains, measure.cutoff].append(measure)
    values: Measurements = {}
    if others := [measure.name for measure in parsed if not measure.trec_name]:
        from rerank.evaluation.other_measures import evaluate_others

        values = evaluate_others(judged, rankings, others)
    for (rel, gains, cutoff), group in passes.items():
        by_query = _pytrec_eval(judged, rankings, {measure.trec_name for measure in group}, rel, gains, cutoff)
        for measure in group:
            values[measure.name] = {q: by_query[q][measure.trec_name] if q in by_query else 0.0 for q in judged}
    return {measure.name: values[measure.name] for measure in parsed}


def missing_queries(qrels: Qrels, run: Run) -> list[str]:
    """The ids of the judged queries for which the run has no document: each counts 0 in every measure."""
    return [query_id for query_id, judgments in qrels.items() if judgments and not run.get(query_id)]


def _pytrec_eval(
    judged: Qrels, run: Run, names: set[str], rel: int, gains: str, cutoff: int
) -> dict[str, dict[str, float]]:
    pytrec_eval = import_package("pytrec_eval", "pip install --force-reinstall pytrec-eval-terrier")
    judged = {query_id: _with_gains(query_id, judgments, gains) for query_id, judgments in judged.items()}
    if cutoff:
        run = {q: {doc_id: scores[doc_id] for doc_id in ranked(scores)[:cutoff]} for q, scores in run.items()}
    values: dict[str, dict[str, float]] = pytrec_eval.RelevanceEvaluator(judged, names, rel).evaluate(run)
    return values


def _with_gains(query_id: str, judgments: dict[str, int], gains: str) -> dict[str, int]:
    """The judgments of a query with the grades that pytrec_eval gets."""
    if gains == "judged":
        return dict.fromkeys(judgments, 1)
    highest = max(judgments.values())
    if highest < -1:  # every document is judged as junk: pytrec_eval 0.5 then reads and writes beyond its arrays
        return dict.fromkeys(judgments, -1)
    if gains == "exponential":
        if highest > HIGHEST_GRADE:
            raise UserError(f"query {query_id}: gain 2^rel - 1: expected grades up to {HIGHEST_GRADE}, got {highest}")
        return {doc_id: 2**grade - 1 if grade > 0 else grade for doc_id, grade in judgments.items()}
    return judgments
