"""Interpolation of several runs against loops over its definition, and the tuning of its weights."""

import random

import pytest

from rerank.data.trec import ranked
from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.fusion import fuse, tune_weight
from rerank.evaluation.fusion_of_scores import fuse_scores, tune_weights, weight_grid

QRELS: Qrels = {f"q{i}": {f"d{j:02}": int(j < 3) for j in range(20)} for i in range(12)}


def drawn(seed: int, skill: float) -> Run:
    draw = random.Random(seed)
    return {q: {d: draw.gauss(0, 1) + skill * grade for d, grade in judged.items()} for q, judged in QRELS.items()}


def slow(runs: list[dict[str, float]], weights: tuple[float, ...]) -> dict[str, tuple[float, float, str]]:
    found = {}
    for doc_id in {doc_id for run in runs for doc_id in run}:
        total = 0.0
        for run, weight in zip(runs, weights, strict=True):
            low, high = min(run.values()), max(run.values())
            total += weight * (run[doc_id] - low) / (high - low) if doc_id in run else 0.0
        found[doc_id] = (total, runs[0].get(doc_id, min(runs[0].values())), doc_id)
    return found


@pytest.mark.parametrize("weights", [(0.5, 0.25, 0.25), (1.0, 0.0, 0.0), (0.0, 0.5, 2.0), (1.0, 1.0, 1.0)])
def test_scores_and_order_are_those_of_a_slow_loop(weights: tuple[float, ...]) -> None:
    draw = random.Random(1)
    for _ in range(20):  # multiples of 1/8 in ranges of powers of two: the scaled scores are exact, and there are ties
        runs = [{f"d{i}": draw.randint(0, 16) / 8 for i in draw.sample(range(40), 25)} for _ in range(3)]
        runs = [run | {"low": -1.0, "high": 3.0} for run in runs]
        found = fuse_scores([{"q": run} for run in runs], weights)["q"]
        expected = slow(runs, weights)
        assert list(found) == ranked(found) == sorted(expected, key=lambda d: expected[d], reverse=True)
        assert found == pytest.approx({doc_id: value[0] for doc_id, value in expected.items()}, abs=1e-5)


def test_of_two_runs_it_is_the_fusion_with_a_first_stage() -> None:
    first, model = drawn(1, 1.0), drawn(2, 2.0)
    for weight in (0.0, 0.3, 1.0):
        mixed, both = fuse(model, first, weight), fuse_scores([first, model], (1 - weight, weight))
        assert {q: list(scores) for q, scores in mixed.items()} == {q: list(scores) for q, scores in both.items()}
    assert tune_weights([first, model], QRELS)[1] == tune_weight(model, first, QRELS)


def test_a_run_without_the_query_or_with_equal_scores_adds_nothing() -> None:
    first = {"a": 1.0, "b": 3.0, "c": 2.0}
    for other in ({}, {"q": {"a": 5.0, "b": 5.0}}, {"other": {"a": 1.0}}):
        fused = fuse_scores([{"q": first}, other], (0.5, 0.5))
        assert fused["q"] == {"b": 0.5, "c": 0.25, "a": pytest.approx(0.0)}


def test_weights_may_differ_by_query() -> None:
    first, model = drawn(1, 1.0), drawn(2, 2.0)
    fused = fuse_scores([first, model], {"q0": (1.0, 0.0), "q1": (0.0, 1.0), "unknown": (1.0, 0.0)})
    assert {q: list(scores) for q, scores in fused.items()} == {"q0": ranked(first["q0"]), "q1": ranked(model["q1"])}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((0.5,), "expected a weight for each of the 2 runs, got 1"),
        ((0.5, -0.5), "expected weights of 0 or more, one of them above 0, got 0.5 -0.5"),
        ((0.0, 0.0), "one of them above 0"),
        ((float("nan"), 1.0), "expected weights of 0 or more"),
        ((float("inf"), 1.0), "expected weights of 0 or more"),
    ],
)
def test_wrong_weights_are_refused(weights: tuple[float, ...], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        fuse_scores([drawn(1, 0.0), drawn(2, 0.0)], weights)


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_the_grid_has_every_combination_once(runs: int) -> None:
    grid = list(weight_grid(runs))
    steps = 20 if runs == 2 else 10
    assert len(grid) == len(set(grid)) == {2: 21, 3: 66, 4: 286}[runs]
    assert all(sum(round(weight * steps) for weight in weights) == steps for weights in grid)
    assert all(weight == round(weight * steps) / steps for weights in grid for weight in weights)


@pytest.mark.parametrize(
    "measure", ["AP", "nDCG@5", "P@3", "RR@2", "R@10", "AP@7", "Success@1", "Judged@4", "IPrec@1.0"]
)
def test_tuned_weights_are_the_best_of_the_grid_and_favour_the_first_of_equal_runs(measure: str) -> None:
    qrels = {query_id: QRELS[query_id] for query_id in ("q0", "q1", "q2")}
    runs = [{q: run[q] for q in qrels} for run in (drawn(3, 1.0), drawn(4, 1.0), drawn(5, 1.0))]

    def mean(weights: tuple[float, ...]) -> float:
        (values,) = evaluate(qrels, fuse_scores(runs, weights), [measure]).values()
        return sum(values.values()) / len(values)

    best = tune_weights(runs, qrels, measure)
    grid = list(weight_grid(3))
    means = [mean(weights) for weights in grid]
    assert best == grid[next(i for i, value in enumerate(means) if value > max(means) - 1e-12)]
    assert tune_weights([runs[0]] * 3, qrels, measure) == (1.0, 0.0, 0.0)


def test_noise_gets_little_weight_and_the_best_run_most() -> None:
    weights = tune_weights([drawn(6, 0.0), drawn(7, 6.0), drawn(8, 0.0)], QRELS)
    assert weights[1] >= 0.6
