import math
import random
import subprocess
import sys
from collections.abc import Callable

import pytest
import pytrec_eval

from rerank.data.trec import ranked
from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate, missing_queries
from rerank.evaluation.measures import HIGHEST_GAIN, measure_names
from rerank.utils.errors import UserError
from tests.support.paths import ROOT
from tests.support.patience import SECONDS
from tests.support.random_judgments import BINARY, GRADED


def test_every_judged_query_has_a_value() -> None:
    qrels = {"relevant": {"a": 1}, "none": {"a": 0, "b": -1}, "lacking": {"a": 1}, "empty": {"a": 2}, "unjudged": {}}
    run = {"relevant": {"a": 1.0}, "none": {"a": 1.0}, "empty": {}, "elsewhere": {"a": 1.0}}
    values = evaluate(qrels, run, ["map", "NDCG@1"])
    expected = {"relevant": 1.0, "none": 0.0, "lacking": 0.0, "empty": 0.0}
    assert values == {"AP": expected, "nDCG@1": expected}
    assert missing_queries(qrels, run) == ["lacking", "empty"]


@pytest.mark.parametrize(("seed", "highest"), [(0, 3), (1, 3), (2, 255), (3, 2**31)])
def test_random_grades_have_the_values_of_trec_eval(seed: int, highest: int) -> None:
    """In a process of its own, which pytrec_eval may break or hang."""
    words = [sys.executable, "-m", "tests.support.random_judgments", str(seed), "150", str(highest)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_measure_of_trec_eval_is_that_of_pytrec_eval_on_queries_with_nothing_relevant_or_retrieved() -> None:
    qrels = {"p": {"a": 1, "b": 0, "c": 3, "e": 1}, "none": {"a": 0}, "lacking": {"a": 2, "b": 1}}
    run = {"p": {"a": 1.0, "b": 2.0, "c": 0.5, "d": 4.0}, "none": {"a": 1.0}}
    names = [*GRADED, *BINARY]
    values = evaluate(qrels, run, names)
    for name, trec_name in zip(measure_names(names), names, strict=True):
        alone = pytrec_eval.RelevanceEvaluator(qrels, {trec_name}).evaluate(run)
        assert {q: values[name][q] for q in run} == {query_id: alone[query_id][trec_name] for query_id in run}
    lacking = {name: of["lacking"] for name, of in values.items()}
    assert lacking == dict.fromkeys(values, 0.0) | {"NumQ": 1.0, "NumRel": 2.0}


def test_grades_below_0_are_judged_non_relevant() -> None:
    """The values of a document judged -2 are those of one judged 0; trec_eval's bpref leaves it out instead."""
    run = {"q": {"junk": 3.0, "good": 2.0, "unjudged": 1.0}}
    names = ["bpref", "infAP", "P_2", "nDCG", "Judged@3", "Judged@1"]
    values = evaluate({"q": {"junk": -2, "good": 1}}, run, names)
    assert values == evaluate({"q": {"junk": 0, "good": 1}}, run, names)
    assert {name: of["q"] for name, of in values.items()} == {
        "Bpref": 0.0,
        "infAP": pytest.approx(0.5, abs=1e-4),
        "P@2": 0.5,
        "nDCG": pytest.approx(0.6309, abs=1e-4),
        "Judged@3": pytest.approx(2 / 3),
        "Judged@1": 1.0,
    }


@pytest.mark.parametrize(
    ("measure", "highest"),
    [("nDCG@5", HIGHEST_GAIN), ("nDCG(dcg='exp-log2')@20", 12), ("ERR@20", 4)],
)
def test_a_high_grade_is_refused_by_measures_of_graded_judgments_alone(measure: str, highest: int) -> None:
    """pytrec_eval's nDCG takes minutes for a grade of 10^6, and memory for every grade up to the highest."""
    run = {"q": {"a": 1.0}}
    assert evaluate({"q": {"a": highest}}, run, [measure])[measure]["q"] > 0.9
    qrels = {"q": {"a": 2**31, "b": 10**6}}
    with pytest.raises(UserError, match=f"expected grades up to {highest}, got 2147483648"):
        evaluate(qrels, run, [measure])
    values = evaluate(qrels, run, [name for name in BINARY if name != "infAP"])
    assert values["P@1"]["q"] == 1.0


def graded(seed: int) -> tuple[Qrels, Run]:
    """Graded judgments and a run with ties; a judged query has no documents, another none that is relevant."""
    draw = random.Random(seed)
    qrels = {f"q{i}": {f"d{d}": draw.choice([-1, 0, 0, 1, 2, 3]) for d in draw.sample(range(40), 20)} for i in range(9)}
    run = {f"q{i}": {f"d{d}": draw.randint(0, 9) / 2 for d in draw.sample(range(40), 5 + 3 * i)} for i in range(9)}
    return {**qrels, "lacking": {"a": 1}, "none": {"a": 0}}, {**run, "none": {"a": 1.0}, "unjudged": {"a": 1.0}}


def hits(grades: list[int], rel: int = 1) -> list[int]:
    return [rank for rank, grade in enumerate(grades, 1) if grade >= rel]


def ndcg(grades: list[int], best: list[int], gain: Callable[[int], int] = int) -> float:
    dcg, ideal = (sum(gain(grade) / math.log2(2 + i) for i, grade in enumerate(of)) for of in (grades, best))
    return dcg / (ideal or 1)


def expected_reciprocal_rank(grades: list[int]) -> float:
    """Chapelle et al., "Expected reciprocal rank for graded relevance", 2009, with 4 as the highest grade."""
    stays, expected = 1.0, 0.0
    for rank, grade in enumerate(grades, 1):
        satisfied = (2**grade - 1) / 2**4
        expected += stays * satisfied / rank
        stays *= 1 - satisfied
    return expected


DEFINITIONS: dict[str, Callable[[list[int], list[int]], float]] = {
    "P@5": lambda grades, best: len(hits(grades[:5])) / 5,
    "AP": lambda grades, best: sum(n / rank for n, rank in enumerate(hits(grades), 1)) / max(1, len(hits(best))),
    "RR": lambda grades, best: 1 / min(hits(grades), default=math.inf),
    "RR(rel=3)@3": lambda grades, best: 1 / min(hits(grades[:3], 3), default=math.inf),
    "R@10": lambda grades, best: len(hits(grades[:10])) / max(1, len(hits(best))),
    "nDCG@10": lambda grades, best: ndcg(grades[:10], best[:10]),
    "nDCG(dcg='exp-log2')@5": lambda grades, best: ndcg(grades[:5], best[:5], lambda grade: 2**grade - 1),
    "nDCG(dcg='exp-log2')@20": lambda grades, best: ndcg(grades[:20], best[:20], lambda grade: 2**grade - 1),
    "ERR@5": lambda grades, best: expected_reciprocal_rank(grades[:5]),
    "ERR@20": lambda grades, best: expected_reciprocal_rank(grades[:20]),
    # Moffat and Zobel, "Rank-biased precision for measurement of retrieval effectiveness", 2008.
    "RBP(p=0.5,rel=2)": lambda grades, best: sum(0.5**rank for rank in hits(grades, 2)),
}
"""The values of a query by the grades in the order of the run, and in the best order."""


@pytest.mark.parametrize("seed", range(3))
def test_values_are_those_of_loops_over_the_definitions(seed: int) -> None:
    qrels, run = graded(seed)
    values = evaluate(qrels, run, DEFINITIONS)
    assert list(values) == list(DEFINITIONS)
    for query_id, judged in qrels.items():
        grades = [max(0, judged.get(doc_id, 0)) for doc_id in ranked(run.get(query_id, {}))]
        best = sorted((max(0, grade) for grade in judged.values()), reverse=True)
        expected = {name: of_grades(grades, best) for name, of_grades in DEFINITIONS.items()}
        assert {name: of[query_id] for name, of in values.items()} == pytest.approx(expected, abs=6e-6)  # as gdeval


def test_judged_documents_alone_have_the_values_of_pytrec_eval() -> None:
    qrels, run = graded(4)
    qrels = {q: {doc_id: max(0, grade) for doc_id, grade in qrels[q].items()} for q in run if q in qrels}
    values = evaluate(qrels, run, ["nDCG(judged_only=True)@5"])
    alone = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_5"}, 1, True).evaluate(run)
    assert values["nDCG(judged_only=True)@5"] == {q: of["ndcg_cut_5"] for q, of in alone.items()}


def test_ids_with_white_space_or_none_at_all_have_the_values_of_others() -> None:
    names, odd = (
        ["nDCG@5", "ERR@20", "RBP(rel=1)", "Compat", "Judged@5"],
        {"a": "a x", "b": "", "c": "c\ty", "d": "d\n"},
    )
    qrels = {"q": {"a": 2, "b": 1, "d": 0}, "other": {"a": 1}}
    run = {"q": {"a": 1.0, "b": 2.0, "c": 3.0, "d": 0.5}}
    renamed = [
        {q: {odd[doc_id]: value for doc_id, value in documents.items()} for q, documents in some.items()}
        for some in (qrels, run)
    ]
    assert evaluate(*renamed, names) == evaluate(qrels, run, names)


def test_share_of_judged_documents_is_that_of_a_loop() -> None:
    qrels, run = graded(2)
    values = evaluate(qrels, run, ["Judged@10", "Compat(p=0.8)"])
    assert all(of.keys() == qrels.keys() for of in values.values())
    for query_id, judged in qrels.items():
        top = ranked(run.get(query_id, {}))[:10]
        assert values["Judged@10"][query_id] == sum(doc_id in judged for doc_id in top) / max(1, len(top))


def test_grade_from_which_a_document_is_relevant() -> None:
    qrels, run = graded(3)
    binary = {q: {doc_id: int(grade >= 2) for doc_id, grade in judged.items()} for q, judged in qrels.items()}
    names = ["P(rel=2)@5", "AP(rel=2)", "R(rel=2)@10", "RR(rel=2)", "Success(rel=2)@5", "IPrec(rel=2)@0.1"]
    values = evaluate(qrels, run, [*names, "P@5"])
    plain = evaluate(binary, run, [name.replace("(rel=2)", "") for name in names])
    assert list(values)[:2] == ["P(rel=2)@5", "AP(rel=2)"]
    assert list(values.values())[:-1] == list(plain.values())
    assert values["P@5"] != values["P(rel=2)@5"]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -1e39])
def test_a_score_that_is_no_number_is_named(score: float) -> None:
    with pytest.raises(UserError, match="query q, document b: expected a finite score"):
        evaluate({"q": {"a": 1}}, {"q": {"a": 1.0, "b": score}}, ["map"])


def test_run_and_judgments_of_different_collections() -> None:
    with pytest.raises(UserError, match="no query in common"):
        evaluate({"q": {"a": 1}, "p": {}}, {"p": {"a": 1.0}})
