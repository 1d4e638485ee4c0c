"""Reciprocal rank fusion against a loop over its definition."""

import random
from itertools import pairwise, permutations

import pytest

from rerank.data.trec import ranked
from rerank.data.types import Run
from rerank.evaluation.fusion_of_ranks import fuse_ranks


def drawn(draw: random.Random, documents: int = 40) -> dict[str, float]:
    return {
        f"d{i}": draw.randint(0, 12) / 4 for i in draw.sample(range(documents), draw.randint(1, documents * 3 // 4))
    }


def slow(runs: list[dict[str, float]], k: int) -> dict[str, float]:
    """The sums, best first; equal ones in the order of the first run that has one of them."""
    parts: dict[str, list[float]] = {}
    for scores in runs:
        for rank, doc_id in enumerate(ranked(scores), 1):
            parts.setdefault(doc_id, []).append(1 / (k + rank))
    sums = {doc_id: sum(sorted(of_document)) for doc_id, of_document in parts.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))  # stable, as dict and sorted are


@pytest.mark.parametrize("k", [0, 1, 60, 1000])
@pytest.mark.parametrize("runs", [2, 3, 5])
def test_scores_and_order_are_those_of_a_slow_loop(k: int, runs: int) -> None:
    draw = random.Random(k + runs)
    for _ in range(20):
        given = [drawn(draw) for _ in range(runs)]
        found = fuse_ranks([{"q": scores} for scores in given], k)["q"]
        expected = slow(given, k)
        assert list(found) == ranked(found) == list(expected)
        assert found == pytest.approx(expected, rel=1e-5)
        values = list(found.values())
        assert all(above > below for above, below in pairwise(values))


def test_the_order_of_the_runs_decides_ties_alone() -> None:
    draw = random.Random(7)
    given = [drawn(draw, 20) for _ in range(3)]
    exact = slow(given, 60)
    for order in permutations(given):
        found = list(fuse_ranks([{"q": scores} for scores in order])["q"])
        assert [exact[doc_id] for doc_id in found] == list(exact.values())


def test_a_query_of_one_run_keeps_its_ranking_and_all_queries_are_there() -> None:
    first: Run = {"a": {"x": 2.0, "y": 3.0}, "b": {"x": 1.0}}
    second: Run = {"c": {"z": 1.0}, "b": {"y": 1.0}}
    fused = fuse_ranks([first, second], 1)
    assert list(fused) == ["a", "b", "c"]
    assert list(fused["a"]) == ["y", "x"]
    assert list(fused["b"]) == ["x", "y"]  # equal sums: the first run's document first
    assert fused["c"] == {"z": 0.5}


def test_a_negative_k_is_refused() -> None:
    with pytest.raises(ValueError, match="k: expected 0 or more, got -1"):
        fuse_ranks([{"q": {"a": 1.0}}], -1)
