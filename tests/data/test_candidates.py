import random

import pytest

from rerank.data.candidates import ListsOf, distinct_doc_ids, select_candidates, standardised
from rerank.data.runs import read_run_arrays
from rerank.data.trec import write_run
from rerank.data.types import Candidates
from rerank.utils.errors import UserError

RUN = {"2": {"a": 1.0, "b": 3.0, "c": 1.0}, "1": {"x": 0.5}}


def test_documents_are_in_order_and_cut_and_labelled() -> None:
    qrels = {"2": {"c": 2, "b": -2, "other": 1}}
    assert dict(select_candidates(RUN, qrels, depth=2)) == {
        "2": Candidates("2", ("b", "c"), (0, 2)),  # a negative judgment is a label of 0
        "1": Candidates("1", ("x",), (0,)),
    }
    assert select_candidates(RUN, qrels, depth=150)["2"].doc_ids == ("b", "c", "a")
    assert select_candidates(RUN, {}, 2, keep_scores=True)["2"] == Candidates("2", ("b", "c"), (0, 0), (1.0, -1.0))


def test_chosen_queries_and_those_that_the_run_lacks() -> None:
    found = select_candidates(RUN, {"1": {"x": 1}}, 10, ["3", "1"])
    assert dict(found) == {"3": Candidates("3", (), ()), "1": Candidates("1", ("x",), (1,))}
    assert "2" not in found
    with pytest.raises(KeyError):
        found["2"]


def test_run_and_judgments_of_different_collections() -> None:
    with pytest.raises(
        UserError, match="the run and the qrels have no query in common: got queries 2, 1 and 301, 302, 303, …;"
    ):
        select_candidates(RUN, {str(q): {"d": 1} for q in range(301, 320)}, 10)


@pytest.mark.parametrize("keep_scores", [True, False])
@pytest.mark.parametrize("some", [slice(None), slice(10, 12)])
def test_candidates_of_a_run_in_arrays_are_those_of_dictionaries(tmp_path, some, keep_scores):
    draw = random.Random(0)
    run = {f"q{q}": {f"d{d}": float(draw.randint(0, 9)) for d in draw.sample(range(40), 12)} for q in range(30)}
    qrels = {f"q{q}": {f"d{d}": draw.randint(-1, 2) for d in draw.sample(range(45), 6)} for q in range(5, 35)}
    query_ids = [f"q{q}" for q in reversed(range(33))][some]
    write_run(run, tmp_path / "some.run", "tag", as_found=True)
    expected = select_candidates(run, qrels, 7, query_ids, keep_scores)
    for arrays in (read_run_arrays(tmp_path / "some.run", 7, query_ids), read_run_arrays(tmp_path / "some.run")):
        found = select_candidates(arrays, qrels, 7, query_ids, keep_scores)
        assert list(arrays) == list(run)
        assert list(found) == query_ids
        assert dict(found) == dict(expected)
        ids = distinct_doc_ids(found)
        assert [ids[0], *ids[1:]] == list(ids) == distinct_doc_ids(expected) == distinct_doc_ids(dict(expected))
        lists = ListsOf(found, query_ids[1:])
        assert list(lists) == list(expected.values())[1:]
        assert lists[-1] == expected[query_ids[-1]]


def test_equal_scores_and_no_scores_are_standardised() -> None:
    assert standardised([2.0, 2.0]) == (0.0, 0.0)
    assert standardised([]) == ()
