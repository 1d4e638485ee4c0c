"""Numbers are summed over the queries, gm_map and gm_bpref are geometric means."""

import math

import pytest

from rerank.data.types import Fold
from rerank.evaluation.compare import compare
from rerank.evaluation.run_comparison import RunComparison

QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"a": 2}, "q3": {"c": 1}, "q4": {"a": 1}}
RUNS = {
    "one": {"q1": {"a": 2.0, "b": 1.0}, "q3": {"c": 1.0}, "q4": {"x": 2.0, "a": 1.0}},
    "two": {"q1": {"b": 2.0, "a": 1.0}, "q2": {"a": 1.0}, "q4": {"a": 1.0}},
}


def test_summaries_are_those_of_trec_eval() -> None:
    """The values that `trec_eval -c` prints for these files; a missing query counts as an AP of 0.00001."""
    compared = compare(RUNS, QRELS, ["num_q", "num_ret", "num_rel", "num_rel_ret", "gm_map", "AP"]).rows
    means = {measure: [row.mean for row in rows] for measure, rows in compared.items()}
    assert means == {
        "NumQ": [4, 4],
        "NumRet": [5, 4],
        "NumRel": [4, 4],
        "NumRet(rel=1)": [3, 3],
        "gm_map": pytest.approx([(1 * 1e-5 * 1 * 0.5) ** 0.25, (0.5 * 1 * 1e-5 * 1) ** 0.25]),
        "AP": [0.625, 0.625],
    }


def test_errors_differences_and_intervals_belong_to_the_summary() -> None:
    comparison = compare(RUNS, QRELS, ["num_ret", "gm_map"], baseline="one")
    total, geometric = (RunComparison(**record) for record in comparison.records() if record["run"] == "two")
    assert (total.mean, total.difference) == (4, -1)
    assert total.low <= total.mean <= total.high <= 8
    assert total.error == pytest.approx(4 * math.sqrt(2 / 3) / 2)
    assert geometric.difference == pytest.approx(0.0)
    assert geometric.low <= geometric.mean <= geometric.high <= 1
    logs = [math.log(0.5), 0.0, math.log(1e-5), 0.0]
    spread = math.sqrt(sum((value - sum(logs) / 4) ** 2 for value in logs) / 3 / 4)
    assert geometric.error == pytest.approx(geometric.mean * spread)


def test_tables_say_what_is_no_mean_and_a_sum_ignores_folds() -> None:
    folds = [Fold("1", [], [], ["q1", "q2"]), Fold("2", [], [], ["q3", "q4"])]
    comparison = compare(RUNS, QRELS, ["num_ret", "gm_map", "AP"], folds=folds)
    text = str(comparison)
    assert "NumRet: the sum over the queries, not the mean.\ngm_map: the geometric mean over the queries.\n" in text
    assert "5.0000" in text
    assert comparison.rows["NumRet"][0].headline[0] == 5
    assert comparison.rows["gm_map"][0].headline[0] == pytest.approx((1e-5 * 0.5) ** 0.25)
    assert "the sum over" not in str(compare(RUNS, QRELS, ["AP"]))
