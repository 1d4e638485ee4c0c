"""The candidates that are made from arrays are those of `select_candidates`."""

import random

import pytest

from rerank.data.candidate_lists import CandidateLists, ListsOf, distinct_doc_ids, without_relevant
from rerank.data.candidates import queries_without_relevant, select_candidates
from rerank.data.run_arrays import read_run_arrays
from rerank.data.trec import read_run, write_run
from rerank.utils.errors import UserError

DEPTH = 7


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A run file, judgments, and the ids of queries, some of which the run does not have."""
    draw = random.Random(0)
    run = {f"q{q}": {f"d{d}": float(draw.randint(0, 9)) for d in draw.sample(range(40), 12)} for q in range(30)}
    path = tmp_path_factory.mktemp("candidates") / "some.run"
    write_run(path, run, "tag", as_found=True)
    qrels = {f"q{q}": {f"d{d}": draw.randint(-1, 2) for d in draw.sample(range(45), 6)} for q in range(5, 35)}
    return path, qrels, [f"q{q}" for q in reversed(range(33))]


def both(case, query_ids, qrels, keep_scores=False):
    path, *_ = case
    return (
        select_candidates(read_run(path), qrels, DEPTH, query_ids, keep_scores),
        CandidateLists(read_run_arrays(path, DEPTH, query_ids, keep_scores), qrels, query_ids),
    )


@pytest.mark.parametrize("keep_scores", [True, False])
@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize("some", [slice(None), slice(10, 12)])
def test_each_query_has_the_same_candidates(case, some, judged, keep_scores):
    query_ids = case[2][some]
    expected, found = both(case, query_ids, case[1] if judged else {}, keep_scores)
    assert any(candidates.first_scores for candidates in expected.values()) == keep_scores
    assert list(found) == list(expected) == query_ids
    assert dict(found) == expected
    assert list(distinct_doc_ids(found)) == distinct_doc_ids(expected)
    assert without_relevant(found, query_ids) == queries_without_relevant(expected)
    lists = ListsOf(found, query_ids[1:])
    assert list(lists) == list(lists[:]) == list(expected.values())[1:]
    assert lists[-1] == expected[query_ids[-1]]


def test_the_distinct_ids_are_texts_that_are_made_when_they_are_asked_for(case):
    expected, found = both(case, case[2], {})
    ids = distinct_doc_ids(found)
    assert not isinstance(ids, list)
    assert [ids[0], *ids[1:]] == distinct_doc_ids(expected)
    assert len(ids[2:5]) == 3


def test_a_query_that_was_not_asked_for_is_unknown(case):
    _, found = both(case, ["q1"], {})
    assert "q2" not in found
    with pytest.raises(KeyError):
        found["q2"]


def test_a_run_and_judgments_of_different_collections(case):
    with pytest.raises(UserError, match="the run and the qrels have no query in common: got queries q0, q1, q2, … and"):
        both(case, ["q1"], {"301": {"d": 1}})
