"""Weights by fold: only validation queries choose them."""

import random

import pytest

from rerank.data.folds import official_folds
from rerank.data.types import Qrels, Run
from rerank.evaluation.fusion_by_fold import tune_by_fold, tune_on, weights_of_queries
from rerank.evaluation.fusion_of_scores import tune_weights
from rerank.utils.errors import UserError

QUERIES = [f"q{i}" for i in range(15)]
FOLDS = official_folds([(str(i + 1), QUERIES[i::3]) for i in range(3)])
QRELS: Qrels = {q: {f"d{i:02}": int(i < 3) for i in range(20)} for q in QUERIES}


def drawn(seed: int, skill: float) -> Run:
    draw = random.Random(seed)
    return {q: {d: draw.gauss(0, 1) + skill * QRELS[q][d] for d in QRELS[q]} for q in QUERIES}


RUNS = {"a.run": drawn(1, 1.0), "b.run": drawn(2, 2.0)}


def test_the_weights_of_a_fold_are_those_of_its_validation_queries_alone() -> None:
    found = tune_by_fold(RUNS, QRELS, FOLDS, "P@3")
    for fold in FOLDS:
        assert found[fold.name] == tune_weights(list(RUNS.values()), {q: QRELS[q] for q in fold.valid}, "P@3")
    turned = {q: {d: 1 - g if q in FOLDS[0].test else g for d, g in of.items()} for q, of in QRELS.items()}
    again = tune_by_fold(RUNS, turned, FOLDS, "P@3")
    assert again["1"] == found["1"]
    assert again["3"] == found["3"]
    assert again["2"] != found["2"]  # fold 2 validates on what fold 1 tests


def test_a_query_has_the_weights_of_the_fold_that_tests_it_and_others_the_means() -> None:
    by_fold = {"1": (1.0, 0.0), "2": (0.5, 0.5), "3": (0.0, 1.0)}
    found = weights_of_queries([*QUERIES, "new"], FOLDS, by_fold)
    assert all(found[q] == by_fold[fold.name] for fold in FOLDS for q in fold.test)
    assert found["new"] == (0.5, 0.5)


def test_nothing_to_tune_on_is_one_line() -> None:
    with pytest.raises(UserError, match="none of the validation queries of fold 1 is judged: there is nothing"):
        tune_by_fold(RUNS, {q: QRELS[q] for q in FOLDS[0].test}, FOLDS, "P@3")
    part = {"a.run": RUNS["a.run"], "b.run": {q: RUNS["b.run"][q] for q in FOLDS[0].test}}
    with pytest.raises(
        UserError, match=r"b.run: has none of the 5 judged validation queries of fold 1 \(q2, q5, q8, …\)"
    ):
        tune_by_fold(part, QRELS, FOLDS, "P@3")
    with pytest.raises(UserError, match="the weights of 6 runs at most can be tuned, got 7"):
        tune_on({str(i): RUNS["a.run"] for i in range(7)}, QRELS, "P@3")
