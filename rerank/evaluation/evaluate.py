"""Evaluates a run query by query, with the packages that ir_measures calls; most measures are pytrec_eval's."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rerank.data.given import given_qrels, given_run
from rerank.data.trec import check_common, check_scores, ranked
from rerank.data.types import Judgments, Measurements, Qrels, Run
from rerank.evaluation.measures import DEFAULT_MEASURES, HIGHEST_GAIN, Measure, parse_measures
from rerank.utils.errors import UserError


def evaluate(qrels: Qrels, run: Run, measures: Iterable[str] = DEFAULT_MEASURES) -> Measurements:
    """Returns measure -> query_id -> value, for every query with a judgment.

    The measures have ir_measures' names, whatever names they are given by (see `measure_names`). As with trec_eval's
    option -c, a judged query that the run does not have counts 0 (see `missing_queries`), and so does a query without a
    relevant document. Queries of the run without a judgment have no value. A document with a grade below 0 is judged
    non-relevant, in every measure. Ties, float32 scores and graded gains (rel, not 2^rel - 1) are those of trec_eval
    9.0.8.

    Raises TypeError for ids, scores and grades of other types (numpy's are taken), and UserError for unknown measures,
    for a score that is not a finite float32, for a grade that is too high for a measure, and if the run and the
    judgments have no query in common.

    >>> qrels = {"q1": {"d1": 1, "d2": 0, "d3": 2}, "q2": {"d1": 1}}
    >>> evaluate(qrels, {"q1": {"d2": 2.5, "d3": 1.5}}, ["P@2", "recip_rank"])
    {'P@2': {'q1': 0.5, 'q2': 0.0}, 'RR': {'q1': 0.5, 'q2': 0.0}}
    """
    parsed = parse_measures(measures)
    run, qrels = given_run(run), given_qrels(qrels)
    judged = {query_id: _within_bounds(grades) for query_id, grades in qrels.items() if grades}
    check_common(run, judged)
    rankings = {query_id: run.get(query_id, {}) for query_id in judged}
    check_scores(rankings)
    groups: dict[str, list[Measure]] = defaultdict(list)
    for measure in parsed:
        groups[measure.group].append(measure)
    values: Measurements = {measure.name: dict.fromkeys(judged, 0.0) for measure in parsed}
    highest = {query_id: max(qrels[query_id].values()) for query_id in judged}
    for measure, (query_id, grade) in itertools.product(parsed, highest.items()):
        if grade > (limit := measure.highest_grade):
            raise UserError(f"query {query_id}: {measure.name}: expected grades up to {limit}, got {grade}")
    for group in groups.values():
        _evaluate_group(group, judged, rankings, values)
    return values


def values_of(run: Run, qrels: Judgments, query_ids: Sequence[str], measure: str) -> dict[str, float]:
    """query_id -> the value of a run for those of the queries that are judged; 0 for one that the run does not have."""
    judged = {query_id: qrels[query_id] for query_id in query_ids if qrels.get(query_id)}
    if run.keys().isdisjoint(judged):
        return dict.fromkeys(judged, 0.0)
    (values,) = evaluate(judged, run, [measure]).values()
    return values


def missing_queries(qrels: Qrels, run: Run) -> list[str]:
    """The ids of the judged queries for which the run has no document: each counts 0 in every measure."""
    return [query_id for query_id, judgments in qrels.items() if judgments and not run.get(query_id)]


def _within_bounds(grades: dict[str, int]) -> dict[str, int]:
    """The grades from 0 to HIGHEST_GAIN: pytrec_eval writes beyond its arrays where no grade is 0 or above."""
    if min(grades.values()) >= 0 and max(grades.values()) <= HIGHEST_GAIN:
        return grades
    return {doc_id: min(max(grade, 0), HIGHEST_GAIN) for doc_id, grade in grades.items()}


def _evaluate_group(group: Sequence[Measure], judged: Qrels, rankings: Run, values: Measurements) -> None:
    """Adds the values of measures with the same provider and the same gains; a value that is not finite stays 0."""
    provider, gains = group[0].provider, group[0].gains
    query_ids = {str(number): query_id for number, query_id in enumerate(judged, 1)}  # gdeval takes numbers alone
    qrels = {number: judged[query_id] for number, query_id in query_ids.items()}
    if gains:
        qrels = {q: {doc_id: gains.get(grade, grade) for doc_id, grade in of.items()} for q, of in qrels.items()}
    run = {number: rankings[query_id] for number, query_id in query_ids.items()}
    if provider.NAME != "pytrec_eval":  # it alone ranks ties as trec_eval does, and takes a query without documents
        run = {q: {doc_id: -float(rank) for rank, doc_id in enumerate(ranked(of))} for q, of in run.items() if of}
    names = {measure.computed: measure.name for measure in group}
    for one in provider.evaluator(list(names), qrels).iter_calc(run):
        if math.isfinite(one.value):
            values[names[one.measure]][query_ids[one.query_id]] = float(one.value)
