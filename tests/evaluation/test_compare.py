import csv
import io
import json
import math

import pytest

from rerank.data.folds import official_folds
from rerank.data.types import Fold, Qrels, Run
from rerank.evaluation.compare import compare
from rerank.utils.errors import UserError

QUERIES = [f"q{i}" for i in range(6)]
QRELS: Qrels = {q: {"a": 1, "b": 0} for q in QUERIES}
FOLDS = official_folds([(str(i + 1), QUERIES[i::3]) for i in range(3)])


def ranking(*good: str) -> Run:
    return {q: {"a": 2.0 if q in good else 0.5, "b": 1.0} for q in QUERIES}


RUNS = {"low": ranking("q0"), "high": ranking(*QUERIES), "middle": ranking("q0", "q1", "q2")}


def test_folds_give_the_means_and_a_baseline_the_marks() -> None:
    comparison = compare(RUNS, QRELS, ["P@1"], folds=FOLDS, baseline="low", test="wilcoxon", correction="holm")
    assert comparison.evaluation.queries.averaged_over == "3 folds, 6 queries"
    assert [sorted(query_ids) for query_ids in comparison.evaluation.queries.fold_queries] == [
        ["q0", "q3"],
        ["q1", "q4"],
        ["q2", "q5"],
    ]
    low, high, middle = comparison.rows["P@1"]
    assert (low.reference, low.fold_mean, middle.fold_mean) == ("low", pytest.approx(1 / 6), 0.5)
    assert high.wins == 5
    assert "↑, ↓: better, worse than low (two-sided paired Wilcoxon" in str(comparison)


def test_numbers_of_queries_and_documents_are_summed_whatever_the_folds() -> None:
    """The values that `trec_eval -c` prints for these files."""
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 2}, "q3": {"c": 1}, "q4": {"a": 1}}
    one = {"q1": {"a": 2.0, "b": 1.0}, "q3": {"c": 1.0}, "q4": {"x": 2.0, "a": 1.0}}
    two = {"q1": {"b": 2.0, "a": 1.0}, "q2": {"a": 1.0}, "q4": {"a": 1.0}}
    measures = ["num_q", "num_ret", "num_rel", "num_rel_ret", "AP"]
    folds = [Fold("1", [], [], ["q1", "q2", "q3"]), Fold("2", [], [], ["q4"])]
    for given in (folds, None):
        comparison = compare({"one": one, "two": two}, qrels, measures, folds=given, baseline="one")
        sums = {"NumQ": [4, 4], "NumRet": [5, 4], "NumRel": [4, 4], "NumRet(rel=1)": [3, 3]}
        assert {measure: [row.headline[0] for row in comparison.rows[measure]] for measure in sums} == sums
        assert "NumQ, NumRet, NumRel, NumRet(rel=1): the sum over the queries, not the mean.\n" in str(comparison)
        two_of_all = next(row for row in comparison.records() if (row["run"], row["measure"]) == ("two", "NumRet"))
        assert (two_of_all["mean"], two_of_all["difference"]) == (4, -1)
        assert two_of_all["low"] <= 4 <= two_of_all["high"] <= 8
        assert two_of_all["error"] == pytest.approx(4 * math.sqrt(2 / 3) / 2)
    assert "the sum over" not in str(compare({"one": one}, qrels, ["AP"]))


def test_every_format_of_the_command_line() -> None:
    comparison = compare({"low": RUNS["low"], "high": RUNS["high"]}, {**QRELS, "missing": {"a": 1}}, ["P@1"])
    note = "low: 1 of 7 queries are missing and count 0: missing."
    assert comparison.details().startswith("Comparison over 7 queries\n\nP@1 ")
    for text in (str(comparison), comparison.details(), comparison.to_markdown(), comparison.to_latex(details=True)):
        assert note in text
    assert comparison.to_markdown(details=True).startswith("Comparison over 7 queries\n\n| P@1 | mean [95 %] |")
    assert "\\caption{Mean" in comparison.to_latex()
    (low, high) = comparison.records()
    assert (low["run"], low["mean"], high["p"], high["low"]) == ("low", 1 / 7, None, pytest.approx(4 / 7))
    means = [float(row["mean"]) for row in csv.DictReader(io.StringIO(comparison.to_csv()))]
    assert means == [low["mean"], high["mean"]]
    assert comparison.to_csv(per_query=True).splitlines()[:2] == ["query_id,fold,run,measure,value", "q0,,low,P@1,1.0"]
    facts = json.loads(comparison.to_json())
    assert (facts["test"], facts["correction"], facts["comparisons"], note in facts["notes"]) == (
        "t",
        "bonferroni",
        comparison.records(),
        True,
    )
    assert json.loads(comparison.to_json(per_query=True))["values"] == comparison.records(per_query=True)


def test_user_errors_name_what_is_expected() -> None:
    with pytest.raises(UserError, match=r"baseline lwo: no such run; did you mean low\?"):
        compare(RUNS, QRELS, baseline="lwo")
    with pytest.raises(UserError, match="test z: no such test; expected one of randomisation, t, wilcoxon"):
        compare(RUNS, QRELS, test="z")
    with pytest.raises(UserError, match="correction hom: no such correction; did you mean holm"):
        compare(RUNS, QRELS, correction="hom")
    with pytest.raises(UserError, match="expected at least one run, got none"):
        compare({}, QRELS)
