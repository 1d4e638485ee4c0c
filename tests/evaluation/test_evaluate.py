import gzip
import math
import random
from pathlib import Path

import pytest
import pytrec_eval

from rerank.data.trec import ranked, read_qrels, read_run, write_run
from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate, missing_queries
from rerank.evaluation.measures import DEFAULT_MEASURES, parse_measures
from rerank.utils.errors import UserError
from tests.support.paths import SHARED_DATA

ROBUST04 = SHARED_DATA / "data" / "robust04"


def test_every_judged_query_has_a_value() -> None:
    qrels = {"relevant": {"a": 1}, "none": {"a": 0, "b": -1}, "lacking": {"a": 1}, "empty": {"a": 2}, "unjudged": {}}
    run = {"relevant": {"a": 1.0}, "none": {"a": 1.0}, "empty": {}, "elsewhere": {"a": 1.0}}
    values = evaluate(qrels, run, ["map", "NDCG@1"])
    expected = {"relevant": 1.0, "none": 0.0, "lacking": 0.0, "empty": 0.0}
    assert values == {"AP": expected, "nDCG@1": expected}
    assert missing_queries(qrels, run) == ["lacking", "empty"]


def test_queries_judged_junk_throughout_count_zero() -> None:
    """pytrec_eval alone breaks the process on this: a query whose grades are all below -1, after another one."""
    qrels = {"q": {"a": 2, "b": -1}, "junk": {"a": -2, "b": -3}, "below": {"zz": -5}}
    run = {query_id: {"a": 1.0, "b": 2.0, "x": 3.0} for query_id in qrels}
    for _ in range(100):
        values = evaluate(qrels, run, ["MAP", "nDCG@20", "bpref", "P@1", "nDCG(dcg='exp-log2')"])
    assert all((of["junk"], of["below"]) == (0.0, 0.0) for of in values.values())
    assert values["AP"]["q"] == pytest.approx(1 / 3)


def graded(seed: int) -> tuple[Qrels, Run]:
    draw = random.Random(seed)
    qrels = {f"q{i}": {f"d{d}": draw.choice([-1, 0, 0, 1, 2, 3]) for d in draw.sample(range(40), 20)} for i in range(9)}
    run = {f"q{i}": {f"d{d}": draw.randint(0, 9) / 2 for d in draw.sample(range(40), 5 + 3 * i)} for i in range(9)}
    return qrels, run


def test_values_are_those_of_loops_over_the_definitions() -> None:
    qrels, run = graded(0)
    values = evaluate(qrels, run, ["P@5", "AP", "RR", "R@10", "nDCG@10"])
    for query_id, judged in qrels.items():
        grades = [max(0, judged.get(doc_id, 0)) for doc_id in ranked(run[query_id])]
        best = sorted((max(0, grade) for grade in judged.values()), reverse=True)
        hits = [rank for rank, grade in enumerate(grades, 1) if grade]
        relevant = sum(grade > 0 for grade in best)
        dcg, ideal = (sum(grade / math.log2(2 + i) for i, grade in enumerate(of[:10])) for of in (grades, best))
        expected = {
            "P@5": sum(rank <= 5 for rank in hits) / 5,
            "AP": sum(found / rank for found, rank in enumerate(hits, 1)) / relevant,
            "RR": 1 / hits[0] if hits else 0.0,
            "R@10": sum(rank <= 10 for rank in hits) / relevant,
            "nDCG@10": dcg / ideal,
        }
        assert {name: of[query_id] for name, of in values.items()} == pytest.approx(expected)


def test_exponential_gain_is_that_of_a_loop() -> None:
    """The NDCG of the losses: gain 2^rel - 1, discount log2(1 + rank), over the best ranking of all judgments."""
    qrels, run = graded(1)
    for cut in (1, 5, 20):
        name = f"nDCG(dcg='exp-log2')@{cut}"
        values = evaluate(qrels, run, [name])[name]
        for query_id, judged in qrels.items():
            gains = [2 ** max(0, judged.get(doc_id, 0)) - 1 for doc_id in ranked(run[query_id])]
            best = sorted((2 ** max(0, grade) - 1 for grade in judged.values()), reverse=True)
            dcg, ideal = (sum(g / math.log2(2 + i) for i, g in enumerate(of[:cut])) for of in (gains, best))
            assert values[query_id] == pytest.approx(dcg / ideal)
    with pytest.raises(UserError, match=r"query q: gain 2\^rel - 1: expected grades up to 53, got 54"):
        evaluate({"q": {"a": 54}}, {"q": {"a": 1.0}}, ["nDCG(dcg='exp-log2')@20"])


def test_share_of_judged_documents_is_that_of_a_loop() -> None:
    qrels, run = graded(2)
    values = evaluate({**qrels, "lacking": {"a": 1}}, run, ["Judged@10", "P@10"])
    for query_id, judged in qrels.items():
        top = ranked(run[query_id])[:10]
        assert values["Judged@10"][query_id] == sum(doc_id in judged for doc_id in top) / len(top)
    assert values["Judged@10"]["lacking"] == 0.0


def test_grade_from_which_a_document_is_relevant() -> None:
    qrels, run = graded(3)
    binary = {q: {doc_id: int(grade >= 2) for doc_id, grade in judged.items()} for q, judged in qrels.items()}
    names = ["P(rel=2)@5", "AP(rel=2)", "R(rel=2)@10", "RR(rel=2)", "Success(rel=2)@5", "IPrec(rel=2)@0.1"]
    values = evaluate(qrels, run, [*names, "P@5"])
    plain = evaluate(binary, run, [name.replace("(rel=2)", "") for name in names])
    assert list(values)[:2] == ["P(rel=2)@5", "AP(rel=2)"]
    assert list(values.values())[:-1] == list(plain.values())
    assert values["P@5"] != values["P(rel=2)@5"]


def test_gain_is_the_grade() -> None:
    values = evaluate({"q": {"a": 1, "b": 3}}, {"q": {"a": 2.0, "b": 1.0}}, ["ndcg_cut_1"])
    assert values["nDCG@1"]["q"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -1e39])
def test_a_score_that_is_no_number_is_named(score: float) -> None:
    with pytest.raises(UserError, match="query q, document b: expected a finite score"):
        evaluate({"q": {"a": 1}}, {"q": {"a": 1.0, "b": score}}, ["map"])


def test_run_and_judgments_of_different_collections() -> None:
    with pytest.raises(UserError, match="no query in common"):
        evaluate({"q": {"a": 1}, "p": {}}, {"p": {"a": 1.0}})


def test_awkward_files_have_the_values_of_pytrec_eval(tmp_path: Path) -> None:
    """Ties, any order of lines, ranks that lie, queries lacking on both sides, notation, CRLF, gzip, BOM, tabs."""
    draw = random.Random(0)
    rows, run, qrels = [], {}, {}
    for query in range(30):
        docs = draw.sample(range(60), 40)
        if query != 3:
            run[f"q{query}"] = {f"d{doc}": draw.choice([1.5, 2.25, -4e-5, draw.gauss(0, 1e3)]) for doc in docs}
        if query != 7:
            qrels[f"q{query}"] = {f"d{doc}": draw.choice([-2, -1, 0, 0, 1, 2]) for doc in draw.sample(range(60), 25)}
        for doc_id, score in run.get(f"q{query}", {}).items():
            text = draw.choice([repr(score), f"{score:.17e}", f"{score:+.20f}"])
            rows.append(f"q{query}\tQ0 {doc_id}  {draw.randint(0, 9)}\t{text} run\r\n")
    draw.shuffle(rows)
    (tmp_path / "a.run.gz").write_bytes(gzip.compress(("\ufeff" + "".join(rows)).encode()))
    write_run(tmp_path / "rewritten.run", run, "run")
    trec_names = {measure.name: measure.trec_name for measure in parse_measures(DEFAULT_MEASURES)}
    expected = pytrec_eval.RelevanceEvaluator(qrels, set(trec_names.values())).evaluate(run)
    assert "q3" not in expected
    expected["q3"] = dict.fromkeys(trec_names.values(), 0.0)
    for name in ("a.run.gz", "rewritten.run"):
        values = evaluate(qrels, read_run(tmp_path / name))
        assert values == {name: {q: expected[q][trec_name] for q in qrels} for name, trec_name in trec_names.items()}


@pytest.mark.skipif(not ROBUST04.exists(), reason="no ../shared/data/robust04")
def test_bm25_on_robust04() -> None:
    qrels = read_qrels(ROBUST04 / "qrels.robust2004.txt.gz")
    run = {}
    for fold in range(1, 6):
        run |= read_run(ROBUST04 / f"bm25.fold{fold}.run.gz")
    values = evaluate(qrels, run)
    means = {measure: round(sum(of.values()) / len(of), 4) for measure, of in values.items()}
    assert len(values["AP"]) == 249
    assert "672" in run
    assert "672" not in values["AP"]
    assert missing_queries(qrels, run) == []
    truth = {"nDCG@20": 0.4198, "AP": 0.2241, "P@20": 0.3586, "nDCG": 0.4188}
    assert {measure: means[measure] for measure in truth} == truth
