"""Evaluates random runs on random grades, also below 0, with random measures; exits with 0 if every value is right.

A program of its own: a fault of pytrec_eval ends the process. Arguments: seed, number of trials, highest grade.
"""

import faulthandler
import math
import random
import sys

import pytrec_eval

from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import HIGHEST_COUNTED, evaluate
from rerank.evaluation.measures import WHOLE, WITH_CUTOFF, parse_measures
from scripts.campaign.judgments import judgments

MEASURES = (
    *WHOLE,
    *(f"{name}_{cutoff}" for name in WITH_CUTOFF for cutoff in (1, 3, 10)),
    *("set_relative_P", "num_rel_ret", "iprec_at_recall_0.30", "Judged@5", "RR@3", "P(rel=2)@3", "Bpref(rel=3)"),
    *("infAP(rel=2)", "binG(rel=2)", "Rndcg(rel=2)", "gm_map(rel=2)", "RBP(p=0.5,rel=1)", "Accuracy", "Compat(p=0.8)"),
    *("Accuracy(rel=2)@3", "AP(judged_only=True)", "nDCG(judged_only=True)@5", "nDCG(gains={1:3,2:-4})@5"),
)
FAULTS = (["bpref", "map"], ["11pt_avg"], ["Rndcg"], ["ndcg_cut_10"], ["G", "ndcg_rel", "infAP"])
"""Measures that faulted, or never ended, on a first query with negative grades alone."""


def check(qrels: Qrels, run: Run, names: list[str]) -> None:
    """Raises AssertionError for a value that is not finite, or not that of the same grades without negative ones."""
    values = evaluate(qrels, run, names)
    clamped = {query_id: {doc_id: max(grade, 0) for doc_id, grade in of.items()} for query_id, of in qrels.items()}
    assert values == evaluate(clamped, run, names), (qrels, run, names)
    assert all(math.isfinite(value) for of in values.values() for value in of.values()), (qrels, run, names)
    if max(max(of.values()) for of in clamped.values()) > HIGHEST_COUNTED:
        return
    for measure in parse_measures(names):
        if measure.trec_name and measure.gains == "grade" and not measure.cutoff:
            expected = pytrec_eval.RelevanceEvaluator(clamped, {measure.trec_name}, measure.rel).evaluate(run)
            found = {query_id: values[measure.name][query_id] for query_id in expected}
            assert found == {q: of[measure.trec_name] for q, of in expected.items()}, (qrels, run, measure)


if __name__ == "__main__":
    faulthandler.enable()
    seed, trials, highest = map(int, sys.argv[1:])
    draw = random.Random(seed)
    junk = {"first": {"a": -2, "b": -1}, "second": {"a": 1, "c": -3}}
    for faulty in FAULTS:
        check(junk, {"first": {"a": 2.0, "x": 1.0}, "second": {"a": 1.0, "c": 2.0}}, faulty)
    for _ in range(trials):
        check(*judgments(draw, highest), draw.sample(MEASURES, 5))
