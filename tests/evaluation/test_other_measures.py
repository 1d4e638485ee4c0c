import pytest

from rerank.data.trec import ranked
from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.utils.errors import UserError
from tests.evaluation.test_evaluate import graded


def with_ties_and_gaps(seed: int) -> tuple[Qrels, Run]:
    """Graded judgments and a run with ties; one judged query is without documents, another without a relevant one."""
    qrels, run = graded(seed)
    return {**qrels, "t-lacking": {"a": 1}, "none": {"a": 0}}, {**run, "none": {"a": 1.0}, "unjudged": {"a": 1.0}}


def grades_of(qrels: Qrels, run: Run, query_id: str) -> list[int]:
    return [max(0, qrels[query_id].get(doc_id, 0)) for doc_id in ranked(run.get(query_id, {}))]


def test_err_is_that_of_a_loop() -> None:
    """Chapelle et al., "Expected reciprocal rank for graded relevance", 2009, with 4 as the highest grade."""
    qrels, run = with_ties_and_gaps(0)
    values = evaluate(qrels, run, ["P@5", "ERR@5", "ERR@20"])
    assert list(values) == ["P@5", "ERR@5", "ERR@20"]
    for cut in (5, 20):
        for query_id in qrels:
            stays, expected = 1.0, 0.0
            for rank, grade in enumerate(grades_of(qrels, run, query_id)[:cut], 1):
                satisfied = (2**grade - 1) / 2**4
                expected += stays * satisfied / rank
                stays *= 1 - satisfied
            assert values[f"ERR@{cut}"][query_id] == pytest.approx(expected, abs=6e-6)  # gdeval prints five decimals
    assert max(values["ERR@20"].values()) > 0.1


def test_rank_biased_precision_is_that_of_a_loop() -> None:
    """Moffat and Zobel, "Rank-biased precision for measurement of retrieval effectiveness", 2008."""
    qrels, run = with_ties_and_gaps(1)
    values = evaluate(qrels, run, ["RBP(p=0.5,rel=2)"])["RBP(p=0.5,rel=2)"]
    for query_id in qrels:
        expected = sum(0.5 * 0.5**i for i, grade in enumerate(grades_of(qrels, run, query_id)) if grade >= 2)
        assert values[query_id] == pytest.approx(expected)
    assert values["t-lacking"] == values["none"] == 0.0


def test_reciprocal_rank_is_cut_off() -> None:
    qrels, run = with_ties_and_gaps(2)
    values = evaluate(qrels, run, ["RR(rel=3)@3"])["RR(rel=3)@3"]
    for query_id in qrels:
        ranks = [rank for rank, grade in enumerate(grades_of(qrels, run, query_id)[:3], 1) if grade >= 3]
        assert values[query_id] == pytest.approx(1 / ranks[0] if ranks else 0.0)
    assert len(set(values.values())) > 2


def test_every_query_has_a_number() -> None:
    """Accuracy has none where a query lacks a relevant document or another one."""
    qrels, run = with_ties_and_gaps(3)
    values = evaluate(qrels, run, ["Accuracy", "Compat(p=0.8)"])
    assert values["Accuracy"]["none"] == 0.0
    assert all(of.keys() == qrels.keys() for of in values.values())


def test_a_grade_that_gdeval_does_not_take() -> None:
    with pytest.raises(UserError, match="query q: ERR: expected grades up to 4, got 5"):
        evaluate({"q": {"a": 5}}, {"q": {"a": 1.0}}, ["ERR@20"])
