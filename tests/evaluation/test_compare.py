import csv
import io
import json

import pytest

from rerank.data.folds import official_folds
from rerank.data.types import Qrels, Run
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
    assert comparison.queries.averaged_over == "3 folds, 6 queries"
    assert [sorted(query_ids) for query_ids in comparison.queries.fold_queries] == [
        ["q0", "q3"],
        ["q1", "q4"],
        ["q2", "q5"],
    ]
    low, high, middle = comparison.rows()["P@1"]
    assert (low.reference, low.fold_mean, middle.fold_mean) == ("low", pytest.approx(1 / 6), 0.5)
    assert high.wins == 5
    assert "↑, ↓: better, worse than low (two-sided paired Wilcoxon" in str(comparison)


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
    with pytest.raises(UserError, match="expected at least one measure, got none"):
        compare(RUNS, QRELS, [])
    with pytest.raises(TypeError, match="test: expected a name, got None"):
        compare(RUNS, QRELS, test=None)  # type: ignore[arg-type]


def test_queries_without_a_judged_document_are_noted_with_an_id_of_each_kind() -> None:
    passages: Run = {q: {f"{doc_id}-p1": score for doc_id, score in of.items()} for q, of in RUNS["high"].items()}
    notes = compare({"documents": RUNS["high"], "passages": passages | {"q5": {"a": 1.0}}}, QRELS).notes
    assert notes == [
        "Every run has every query.",
        "passages: 5 of 6 queries rank no judged document (q0, q1, q2, …): "
        "query q0 has a judgment of a and ranks a-p1; compare the ids.",
    ]
    documents: Qrels = {q: {f"{doc_id}#1": grade for doc_id, grade in of.items()} for q, of in QRELS.items()}
    (*_, note) = compare({"documents": RUNS["high"] | {"q5": {"a#1": 1.0}}}, documents).notes
    assert note.endswith("query q0 has a judgment of a#1 and ranks a; compare the ids.")


def test_queries_that_miss_all_judged_documents_are_not_taken_for_other_ids() -> None:
    missing: Run = RUNS["high"] | {"q1": {"doc-a": 1.0}}
    assert compare({"run": missing}, QRELS).notes[1:] == [
        "run: 1 of 6 queries rank no judged document (q1); the ids seem to fit, as the other queries rank judged "
        "documents."
    ]
    (*_, note) = compare({"run": {q: {"7": 1.0} for q in QRELS}}, QRELS).notes
    assert note.endswith(" and ranks 7; compare the ids.")
