"""Grades below 0, and high ones."""

import subprocess
import sys
import time

import pytest
import pytrec_eval

from rerank.data.trec import ranked
from rerank.evaluation.evaluate import HIGHEST_COUNTED, evaluate
from rerank.evaluation.graded import GRADED, HIGHEST_GAIN, graded_value
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_names
from rerank.utils.errors import UserError
from tests.evaluation.test_evaluate import graded
from tests.support.paths import ROOT
from tests.support.patience import SECONDS
from tests.support.random_judgments import MEASURES


@pytest.mark.parametrize(("seed", "highest"), [(0, 3), (1, 3), (2, HIGHEST_COUNTED), (3, 2**31)])
def test_random_grades_have_the_values_of_the_definitions(seed: int, highest: int) -> None:
    """In a process of its own, which pytrec_eval may break or hang."""
    words = [sys.executable, "-m", "tests.support.random_judgments", str(seed), "150", str(highest)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


def test_grades_below_0_are_judged_non_relevant() -> None:
    """The values of a document judged -2 are those of one judged 0; trec_eval's bpref leaves it out instead."""
    run = {"q": {"junk": 3.0, "good": 2.0, "unjudged": 1.0}}
    names = ["bpref", "infAP", "P_2", "nDCG", "num_nonrel_judged_ret", "Judged@3", "Judged@1"]
    values = evaluate({"q": {"junk": -2, "good": 1}}, run, names)
    assert values == evaluate({"q": {"junk": 0, "good": 1}}, run, names)
    assert {name: of["q"] for name, of in values.items()} == {
        "Bpref": 0.0,
        "infAP": pytest.approx(0.5, abs=1e-4),
        "P@2": 0.5,
        "nDCG": pytest.approx(0.6309, abs=1e-4),
        "num_nonrel_judged_ret": 1.0,
        "Judged@3": pytest.approx(2 / 3),
        "Judged@1": 1.0,
    }


def test_high_grades_take_no_time() -> None:
    """trec_eval's ndcg takes minutes for a grade of 10^6, and memory for every grade up to the highest."""
    qrels = {"q": {"a": 2**31, "b": 10**6, "c": 1, "d": 0, "e": -(2**31)}, "p": {"a": 1}}
    run = {query_id: {"b": 3.0, "a": 2.0, "x": 1.0} for query_id in qrels}
    names = [name for name in MEASURES if "(dcg" not in name]
    evaluate(qrels, run, names[:1])
    start = time.perf_counter()
    values = evaluate(qrels, run, [*names, *DEFAULT_MEASURES])
    assert time.perf_counter() - start < 1
    assert values["P@1"]["q"] == 1.0
    assert values["nDCG@1"]["q"] == 10**6 / 2**31
    assert values["Rndcg(rel=2)"]["p"] == 0.0
    assert values["Rndcg"]["p"] > 0.0


def test_high_grades_have_the_values_of_pytrec_eval() -> None:
    """The measures with graded gains, which are computed here from HIGHEST_COUNTED on, bit for bit."""
    for seed in range(20):
        qrels, run = graded(seed)
        qrels = {q: {doc_id: 97 * max(0, grade) for doc_id, grade in of.items()} for q, of in qrels.items()}
        names = [*(name for name in GRADED if name != "ndcg_cut"), "ndcg_cut_3", "ndcg_cut_20"]
        expected = pytrec_eval.RelevanceEvaluator(qrels, set(names)).evaluate(run)
        values = evaluate(qrels, run, names)
        for name, trec_name in zip(measure_names(names), names, strict=True):
            assert values[name] == {query_id: expected[query_id][trec_name] for query_id in qrels}
    assert max(max(of.values()) for of in qrels.values()) > HIGHEST_COUNTED


def test_graded_value_is_that_of_pytrec_eval_for_low_grades_too() -> None:
    for seed in range(20):
        qrels, run = graded(seed)
        for query_id, grades in qrels.items():
            gains = {doc_id: max(0, grade) for doc_id, grade in grades.items()}
            ranking = [gains.get(doc_id, 0) for doc_id in ranked(run[query_id])]
            for name in GRADED:
                trec_name, cutoff = ("ndcg_cut_5", 5) if name == "ndcg_cut" else (name, 0)
                evaluator = pytrec_eval.RelevanceEvaluator({query_id: gains}, {trec_name})
                expected = evaluator.evaluate({query_id: run[query_id]})[query_id][trec_name]
                assert graded_value(name, ranking, list(gains.values()), cutoff) == expected


def test_judged_documents_alone_and_other_gains_have_the_values_of_pytrec_eval() -> None:
    qrels, run = graded(4)
    qrels = {q: {doc_id: max(0, grade) for doc_id, grade in of.items()} for q, of in qrels.items()}
    values = evaluate(qrels, run, ["nDCG(judged_only=True)@5", "nDCG(gains={1:3,2:4})"])
    alone = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_5"}, 1, True).evaluate(run)
    assert values["nDCG(judged_only=True)@5"] == {q: of["ndcg_cut_5"] for q, of in alone.items()}
    gains = {q: {doc_id: {1: 3, 2: 4}.get(grade, grade) for doc_id, grade in of.items()} for q, of in qrels.items()}
    assert values["nDCG(gains={1:3,2:4})"] == evaluate(gains, run, ["nDCG"])["nDCG"]


def test_a_grade_beyond_exact_floats_is_refused_by_graded_measures_alone() -> None:
    qrels, run = {"q": {"a": HIGHEST_GAIN + 1}}, {"q": {"a": 1.0}}
    assert evaluate(qrels, run, ["P@1"])["P@1"]["q"] == 1.0
    with pytest.raises(
        UserError, match="query q: nDCG@5: expected grades up to 9007199254740992, got 9007199254740993"
    ):
        evaluate(qrels, run, ["nDCG@5"])
    with pytest.raises(UserError, match=r"expected rel from 1 to 999999"):
        evaluate(qrels, run, ["P(rel=10000000000,judged_only=True)@5"])
