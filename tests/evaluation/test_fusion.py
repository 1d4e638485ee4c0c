"""Fusion of runs against loops over its definition."""

import math
import random
from itertools import pairwise

import pytest

from rerank.data.trec import ranked
from rerank.data.types import Run
from rerank.evaluation.fusion import fuse_ranks, fuse_scores
from tests.support.random_runs import drawn, relevant_first_three

QRELS = relevant_first_three(15)


def with_ties(draw: random.Random, documents: int = 40) -> dict[str, float]:
    return {
        f"d{i}": draw.randint(0, 12) / 4 for i in draw.sample(range(documents), draw.randint(1, documents * 3 // 4))
    }


def slow_rank_sums(runs: list[dict[str, float]], k: int) -> dict[str, float]:
    """The sums, best first; equal ones in the order of the first run that has one of them."""
    parts: dict[str, list[float]] = {}
    for scores in runs:
        for rank, doc_id in enumerate(ranked(scores), 1):
            parts.setdefault(doc_id, []).append(1 / (k + rank))
    sums = {doc_id: sum(sorted(of_document)) for doc_id, of_document in parts.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))  # stable, as dict and sorted are


@pytest.mark.parametrize("k", [0, 1, 60, 1000])
@pytest.mark.parametrize("runs", [2, 3, 5])
def test_reciprocal_rank_is_that_of_a_slow_loop(k: int, runs: int) -> None:
    draw = random.Random(k + runs)
    for _ in range(20):
        given = [with_ties(draw) for _ in range(runs)]
        found = fuse_ranks([{"q": scores} for scores in given], k)["q"]
        expected = slow_rank_sums(given, k)
        assert list(found) == ranked(found) == list(expected)
        assert found == pytest.approx(expected, rel=1e-5)
        values = list(found.values())
        assert all(above > below for above, below in pairwise(values))


def test_a_query_of_one_run_keeps_its_ranking_and_all_queries_are_there() -> None:
    first: Run = {"a": {"x": 2.0, "y": 3.0}, "b": {"x": 1.0}}
    second: Run = {"c": {"z": 1.0}, "b": {"y": 1.0}}
    fused = fuse_ranks([first, second], 1)
    assert list(fused) == ["a", "b", "c"]
    assert list(fused["a"]) == ["y", "x"]
    assert list(fused["b"]) == ["x", "y"]  # equal sums: the first run's document first
    assert fused["c"] == {"z": 0.5}


@pytest.mark.parametrize("k", [-1, math.nan, math.inf])
def test_a_k_that_is_negative_or_not_finite_is_refused(k: float) -> None:
    with pytest.raises(ValueError, match=f"k: expected 0 or more, got {k}"):
        fuse_ranks([{"q": {"a": 1.0}}], k)


def slow_weighted_sums(runs: list[dict[str, float]], weights: tuple[float, ...]) -> dict[str, tuple[float, float, str]]:
    found = {}
    for doc_id in {doc_id for run in runs for doc_id in run}:
        total = 0.0
        for run, weight in zip(runs, weights, strict=True):
            low, high = min(run.values()), max(run.values())
            total += weight * (run[doc_id] - low) / (high - low) if doc_id in run else 0.0
        found[doc_id] = (total, runs[0].get(doc_id, min(runs[0].values())), doc_id)
    return found


@pytest.mark.parametrize(
    "weights", [(0.35, 0.65), (0.0, 1.0), (0.5, 0.25, 0.25), (1.0, 0.0, 0.0), (0.0, 0.5, 2.0), (1.0, 1.0, 1.0)]
)
def test_interpolation_is_that_of_a_slow_loop(weights: tuple[float, ...]) -> None:
    draw = random.Random(1)
    for _ in range(20):  # multiples of 1/8 in ranges of powers of two: the scaled scores are exact, and there are ties
        runs = [{f"d{i}": draw.randint(0, 16) / 8 for i in draw.sample(range(40), 25)} for _ in weights]
        runs = [run | {"low": -1.0, "high": 3.0} for run in runs]
        found = fuse_scores([{"q": run} for run in runs], weights)["q"]
        expected = slow_weighted_sums(runs, weights)
        assert list(found) == ranked(found) == sorted(expected, key=lambda d: expected[d], reverse=True)
        assert found == pytest.approx({doc_id: value[0] for doc_id, value in expected.items()}, abs=1e-5)


def test_a_run_without_the_query_or_with_equal_scores_adds_nothing() -> None:
    first = {"a": 1.0, "b": 3.0, "c": 2.0}
    for other in ({}, {"q": {"a": 5.0, "b": 5.0}}, {"other": {"a": 1.0}}):
        fused = fuse_scores([{"q": first}, other], (0.5, 0.5))
        assert fused["q"] == {"b": 0.5, "c": 0.25, "a": pytest.approx(0.0)}


def test_scores_that_float32_ties_after_scaling_keep_their_order() -> None:
    first = {"a": -1e7, "d": 8388607.0, "c": 8388607.5, "b": 8388608.0}
    assert ranked(fuse_scores([{"q": first}, {}], (1.0, 0.0))["q"]) == ["b", "c", "d", "a"]


def test_weights_may_differ_by_query() -> None:
    first, model = drawn(QRELS, 1, 1.0), drawn(QRELS, 2, 2.0)
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
        fuse_scores([drawn(QRELS, 1, 0.0), drawn(QRELS, 2, 0.0)], weights)
