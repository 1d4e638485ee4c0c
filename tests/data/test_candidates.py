import pytest

from rerank.data.candidates import queries_without_relevant, select_candidates
from rerank.data.types import Candidates
from rerank.utils.errors import UserError

RUN = {"2": {"a": 1.0, "b": 3.0, "c": 1.0}, "1": {"x": 0.5}}


def test_documents_are_in_order_and_cut_and_labelled() -> None:
    qrels = {"2": {"c": 2, "b": -2, "other": 1}}
    assert select_candidates(RUN, qrels, depth=2) == {
        "2": Candidates("2", ("b", "c"), (0, 2)),  # a negative judgment is a label of 0
        "1": Candidates("1", ("x",), (0,)),
    }
    assert select_candidates(RUN, qrels, depth=150)["2"].doc_ids == ("b", "c", "a")


def test_chosen_queries_and_those_that_the_run_lacks() -> None:
    assert select_candidates(RUN, {"1": {"x": 1}}, 10, ["3", "1"]) == {
        "3": Candidates("3", (), ()),
        "1": Candidates("1", ("x",), (1,)),
    }


def test_queries_without_a_relevant_candidate_are_named() -> None:
    found = select_candidates(RUN, {"1": {"x": 1}, "2": {"b": -1}}, 10, ["1", "2", "3"])
    assert queries_without_relevant(found) == ["2", "3"]


def test_no_judgments_at_all_is_scoring_alone() -> None:
    assert select_candidates(RUN, {}, 1)["2"] == Candidates("2", ("b",), (0,))


def test_run_and_judgments_of_different_collections() -> None:
    with pytest.raises(
        UserError, match="the run and the qrels have no query in common: got queries 2, 1 and 301, 302, 303, …;"
    ):
        select_candidates(RUN, {str(q): {"d": 1} for q in range(301, 320)}, 10)
    with pytest.raises(UserError, match="depth: expected at least 1 document a query, got 0"):
        select_candidates(RUN, {"1": {"x": 1}}, 0)
