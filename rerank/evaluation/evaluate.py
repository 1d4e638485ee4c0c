"""Evaluates a run query by query with the packages that ir_measures calls, mostly pytrec_eval."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rerank.data.given import check_scores, given_qrels, given_run
from rerank.data.trec import check_common, ranked
from rerank.data.types import Judgments, Measurements, Qrels, Run
from rerank.evaluation.measures import DEFAULT_MEASURES, HIGHEST_GAIN, Measure, parse_measures
from rerank.utils.errors import UserError


def evaluate(qrels: Qrels, run: Run, measures: Iterable[str] = DEFAULT_MEASURES) -> Measurements:
    """Returns measure -> query_id -> value, for every query with a judgment.

    The result has ir_measures' names of the measures (see `measure_names`). As with trec_eval's option -c, a judged
    query that the run lacks counts 0 (see `missing_queries`), and so does a query without a relevant document. Queries
    without a judgment have no value. A document with a grade below 0 is non-relevant in every measure. Ties, float32
    scores and graded gains (rel, not 2^rel - 1) are those of trec_eval 9.0.8.

    Raises TypeError for ids, scores and grades of other types (numpy's types are valid). Raises UserError for an
    unknown measure, a score that is not a finite float32, a grade that is too high for a measure, and a run and
    judgments without a common query.

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
    """query_id -> value of a run, for the judged ones of the queries; 0 for a query that the run lacks."""
    judged = {query_id: qrels[query_id] for query_id in query_ids if qrels.get(query_id)}
    if run.keys().isdisjoint(judged):
        return dict.fromkeys(judged, 0.0)
    (values,) = evaluate(judged, run, [measure]).values()
    return values


def missing_queries(qrels: Qrels, run: Run) -> list[str]:
    """The ids of the judged queries without a document in the run, which count 0 in every measure."""
    return [query_id for query_id, judgments in qrels.items() if judgments and not run.get(query_id)]


def _within_bounds(grades: dict[str, int]) -> dict[str, int]:
    """The grades clamped to 0 to HIGHEST_GAIN: pytrec_eval writes beyond its arrays if no grade is 0 or above."""
    if min(grades.values()) >= 0 and max(grades.values()) <= HIGHEST_GAIN:
        return grades
    return {doc_id: min(max(grade, 0), HIGHEST_GAIN) for doc_id, grade in grades.items()}


def _evaluate_group(group: Sequence[Measure], judged: Qrels, rankings: Run, values: Measurements) -> None:
    """Adds the values of measures with the same provider and gains; a value that is not finite stays 0."""
    provider, gains = group[0].provider, group[0].gains
    query_ids = {str(number): query_id for number, query_id in enumerate(judged, 1)}  # gdeval takes only numbers
    qrels = {number: judged[query_id] for number, query_id in query_ids.items()}
    if gains:
        qrels = {
            query: {doc_id: gains.get(grade, grade) for doc_id, grade in grades.items()}
            for query, grades in qrels.items()
        }
    run = {number: rankings[query_id] for number, query_id in query_ids.items()}
    if provider.NAME != "pytrec_eval":
        # Only pytrec_eval breaks ties as trec_eval does, takes an empty ranking, and takes any text as a document's id.
        for query in query_ids:
            documents = sorted({*qrels[query], *run[query]})
            ids = {
                doc_id: f"{place:09}" for place, doc_id in enumerate(documents)
            }  # in the order of the documents' own
            qrels[query] = {ids[doc_id]: grade for doc_id, grade in qrels[query].items()}
            run[query] = {ids[doc_id]: -float(rank) for rank, doc_id in enumerate(ranked(run[query]))}
        run = {query: scores for query, scores in run.items() if scores}
    names = {measure.computed: measure.name for measure in group}
    for metric in provider.evaluator(list(names), qrels).iter_calc(run):
        if math.isfinite(metric.value):
            values[names[metric.measure]][query_ids[metric.query_id]] = float(metric.value)
