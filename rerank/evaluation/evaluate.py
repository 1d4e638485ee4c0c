"""Evaluates a run query by query, with pytrec_eval where it has the measure and ir_measures where not."""

import math
from collections import defaultdict
from collections.abc import Iterable

from rerank.data.trec import check_common, check_scores, ranked
from rerank.data.types import Measurements, Qrels, Run
from rerank.evaluation.graded import GRADED, HIGHEST_GAIN, graded_value
from rerank.evaluation.measures import DEFAULT_MEASURES, Measure, parse_measures
from rerank.evaluation.third_party import import_package
from rerank.utils.errors import UserError

HIGHEST_COUNTED = 255  # trec_eval's time grows with the square of the highest gain; graded.py computes higher ones
HIGHEST_GRADE = 53  # with gain 2^rel - 1: the highest gain is below 2^53
LOWEST_LOG = math.log(0.00001)  # trec_eval takes a value below it for this one in a geometric mean


def evaluate(qrels: Qrels, run: Run, measures: Iterable[str] = DEFAULT_MEASURES) -> Measurements:
    """Returns measure -> query_id -> value, for every query with a judgment.

    The measures have ir_measures' names, whatever names they are given by (see `measure_names`). As with trec_eval's
    option -c, a judged query that the run does not have counts 0, or what trec_eval gives it in num_q, num_rel, gm_map
    and gm_bpref (see `missing_queries`). A query with judgments but without a relevant document counts 0 too. Queries
    of the run without a judgment have no value. A document with a grade below 0 is judged non-relevant, in every
    measure. Ties, float32 scores and graded gains (rel, not 2^rel - 1) are those of trec_eval 9.0.8. The values of
    gm_map and gm_bpref are natural logarithms, as in pytrec_eval. Raises UserError for unknown measures, for a score
    that is not a finite float32, for a grade that is too high for a measure, and if the run and the judgments have no
    query in common.

    >>> qrels = {"q1": {"d1": 1, "d2": 0, "d3": 2}, "q2": {"d1": 1}}
    >>> evaluate(qrels, {"q1": {"d2": 2.5, "d3": 1.5}}, ["P@2", "recip_rank"])
    {'P@2': {'q1': 0.5, 'q2': 0.0}, 'RR': {'q1': 0.5, 'q2': 0.0}}
    """
    parsed = parse_measures(measures)
    # pytrec_eval reads and writes beyond its arrays where no grade is 0 or above.
    judged = {q: {doc_id: max(grade, 0) for doc_id, grade in grades.items()} for q, grades in qrels.items() if grades}
    check_common(run, judged)
    rankings = {query_id: run[query_id] for query_id in judged if run.get(query_id)}
    check_scores(rankings)
    passes: dict[tuple[int, str, int], list[Measure]] = defaultdict(list)
    for measure in parsed:
        if measure.trec_name:
            rel = 1 if _is_graded(measure) else measure.rel
            passes[rel, measure.gains, measure.cutoff].append(measure)
    values: Measurements = {}
    if others := [measure.name for measure in parsed if not measure.trec_name]:
        from rerank.evaluation.other_measures import evaluate_others

        values = evaluate_others(judged, rankings, others)
    for (rel, gains, cutoff), group in passes.items():
        gain_of = {query_id: _gains(query_id, judgments, rel, gains) for query_id, judgments in judged.items()}
        values |= _evaluate_pass(gain_of, rankings, group, cutoff)
    return {measure.name: values[measure.name] for measure in parsed}


def missing_queries(qrels: Qrels, run: Run) -> list[str]:
    """The ids of the judged queries for which the run has no document: each counts 0 in every measure."""
    return [query_id for query_id, judgments in qrels.items() if judgments and not run.get(query_id)]


def _evaluate_pass(gain_of: Qrels, run: Run, measures: list[Measure], cutoff: int) -> Measurements:
    """The values of measures that get the same gains, 0 or more; a document with a gain of 1 or more is relevant."""
    pytrec_eval = import_package("pytrec_eval", "pip install --force-reinstall pytrec-eval-terrier")
    if cutoff:
        run = {q: {doc_id: scores[doc_id] for doc_id in ranked(scores)[:cutoff]} for q, scores in run.items()}
    highest = {query_id: max(gains.values()) for query_id, gains in gain_of.items()}
    high = [query_id for query_id in run if highest[query_id] > HIGHEST_COUNTED]
    counted = {**gain_of, **{q: {doc_id: min(gain, 1) for doc_id, gain in gain_of[q].items()} for q in high}}
    by_query = pytrec_eval.RelevanceEvaluator(counted, {measure.trec_name for measure in measures}).evaluate(run)
    values: Measurements = {}
    for measure in measures:
        name = measure.trec_name
        of_query = {q: by_query[q][name] if q in by_query else _missing(name, gain_of[q]) for q in gain_of}
        if _is_graded(measure):
            of_query |= {q: _high_value(q, measure, gain_of[q], run[q]) for q in high}
            # Rndcg alone has a rel: trec_eval gives 0 to a query without a document that reaches it.
            of_query = {q: value if highest[q] >= measure.rel else 0.0 for q, value in of_query.items()}
        values[measure.name] = of_query
    return values


def _gains(query_id: str, judgments: dict[str, int], rel: int, gains: str) -> dict[str, int]:
    """The gains of the judged documents of a query, from grades of 0 or more."""
    if gains == "judged":
        return dict.fromkeys(judgments, 1)
    if gains == "exponential":
        if (highest := max(judgments.values())) > HIGHEST_GRADE:
            raise UserError(f"query {query_id}: gain 2^rel - 1: expected grades up to {HIGHEST_GRADE}, got {highest}")
        return {doc_id: 2**grade - 1 for doc_id, grade in judgments.items()}
    return {doc_id: int(grade >= rel) for doc_id, grade in judgments.items()} if rel > 1 else judgments


def _is_graded(measure: Measure) -> bool:
    return _family(measure) in GRADED


def _family(measure: Measure) -> str:
    return "ndcg_cut" if measure.trec_name.startswith("ndcg_cut_") else measure.trec_name


def _high_value(query_id: str, measure: Measure, gains: dict[str, int], scores: dict[str, float]) -> float:
    """The value of a query with high gains on a graded measure."""
    if (highest := max(gains.values())) > HIGHEST_GAIN:
        raise UserError(f"query {query_id}: {measure.name}: expected grades up to {HIGHEST_GAIN}, got {highest}")
    ranking = [gains.get(doc_id, 0) for doc_id in ranked(scores)]
    cutoff = int(measure.trec_name.removeprefix("ndcg_cut_")) if _family(measure) == "ndcg_cut" else 0
    return graded_value(_family(measure), ranking, list(gains.values()), cutoff)


def _missing(trec_name: str, gains: dict[str, int]) -> float:
    """What trec_eval's option -c gives a query that the run does not have."""
    if trec_name == "num_rel":
        return float(sum(gain > 0 for gain in gains.values()))
    return {"gm_map": LOWEST_LOG, "gm_bpref": LOWEST_LOG, "num_q": 1.0}.get(trec_name, 0.0)
