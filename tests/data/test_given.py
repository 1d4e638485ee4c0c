"""Runs and judgments of a caller: numpy's values are taken, other types are refused with query and document."""

import numpy as np
import pytest

from rerank import compare, evaluate, fuse_ranks, fuse_scores, train, tune_weights, write_qrels, write_run
from rerank.data.given import given_qrels

QRELS = {"q1": {"d1": 1, "d2": 0}}
RUN = {"q1": {"d1": 2.0, "d2": 1.0}}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64, int])
def test_scores_grades_and_ids_of_numpy_are_taken(kind):
    run = {np.str_("q1"): {np.str_("d1"): kind(2), np.str_("d2"): kind(1)}}
    qrels = {np.str_("q1"): {np.str_("d1"): np.int32(1), np.str_("d2"): np.float64(0)}}
    assert evaluate(qrels, run, ["nDCG@10", "AP"]) == evaluate(QRELS, RUN, ["nDCG@10", "AP"])
    assert str(compare({"ours": run}, qrels, ["AP"])) == str(compare({"ours": RUN}, QRELS, ["AP"]))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ([("q1", "d1", 1.0)], r"run: expected {query_id: {doc_id: score}}, got list"),
        ({"q1": [("d1", 1.0)]}, r"run, query q1: expected {query_id: {doc_id: score}}, got list"),
        ({"q1": {"d1": "1.0"}}, r"run, query q1, document d1: expected a number as score, got '1.0'"),
        ({"q1": {1: 1.0}}, r"run, query q1: expected ids of the type str, got 1 \(int\)"),
        ({1: {"d1": 1.0}}, r"run: expected ids of the type str, got 1 \(int\)"),
    ],
)
def test_other_types_of_runs_are_refused(run, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        evaluate(QRELS, run)


def test_a_grade_beyond_float64_is_a_whole_number_beside_any_other():
    assert given_qrels({"q1": {"d1": np.int64(1), "d2": 10**400}}) == {"q1": {"d1": 1, "d2": 10**400}}


def test_grades_that_are_no_whole_numbers_are_refused():
    with pytest.raises(TypeError, match=r"^qrels, query q1, document d1: expected a whole number as grade, got 0\.5$"):
        compare({"ours": RUN}, {"q1": {"d1": 0.5}})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fuse_ranks(RUN), r"runs: expected a sequence of runs, got dict"),
        (lambda: fuse_scores([RUN, [("q1", "d1")]], (0.5, 0.5)), r"runs\[1\]: expected {query_id: .*}, got list"),
        (
            lambda: tune_weights([RUN, {"q1": {"d1": "2"}}], QRELS),
            r"runs\[1\], query q1, document d1: expected a number",
        ),
        (
            lambda: tune_weights([RUN, RUN], {"q1": {"d1": 0.5}}),
            r"qrels, query q1, document d1: expected a whole number",
        ),
        (lambda: write_run([("q1", "d1", 2.0)], "x.run", "x"), r"run: expected {query_id: {doc_id: score}}, got list"),
        (
            lambda: write_run({"q1": {"d1": "2"}}, "x.run", "x"),
            r"run, query q1, document d1: expected a number as score",
        ),
        (lambda: write_qrels({"q1": {"d1": "1"}}, "x.txt"), r"qrels, query q1, document d1: expected"),
        (lambda: evaluate(QRELS, RUN, "nDCG@5"), r"measures: expected a sequence of names, got one text"),
        (lambda: fuse_ranks([RUN], k="60"), r"k: expected a number, got '60'"),
        (lambda: train("towns"), r"config: expected a rerank.Config, got str"),
    ],
)
def test_fusion_and_files_say_what_they_were_given(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=f"^{message}"):
        call()
    assert not list(tmp_path.iterdir())


def test_fusion_and_files_take_numpys_values(tmp_path):
    run = {np.str_("q1"): {np.str_("d1"): np.float32(2), np.str_("d2"): np.int64(1)}}
    assert fuse_ranks([run, run]) == fuse_ranks([RUN, RUN])
    assert fuse_scores([run, run], np.array([0.5, 0.5])) == fuse_scores([RUN, RUN], (0.5, 0.5))
    assert fuse_scores(iter([run, run]), (0.5, 0.5)) == fuse_scores([RUN, RUN], (0.5, 0.5))
    write_run(run, tmp_path / "x.run", "x")
    assert (tmp_path / "x.run").read_text() == "q1 Q0 d1 1 2.000000 x\nq1 Q0 d2 2 1.000000 x\n"
    write_qrels({"q1": {"d1": np.float64(1)}}, tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_text() == "q1 0 d1 1\n"
