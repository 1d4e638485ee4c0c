"""Theorem 2 and the bounds of Corollary 1: wherever (C1) holds, SmoothI is as close to the truth as the paper says."""

import itertools
import math
from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st

from rerank.losses import exact_metric, rank_indicators
from tests.losses.loops import indicator_metric

ROUNDING = 1e-13
"""Of sums in float64; the metrics are at most 1."""


@dataclass(frozen=True)
class Case:
    """A list of documents, and settings for which (C1) holds at the rank `k`."""

    scores: list[float]
    labels: list[int]
    k: int
    delta: float
    alpha: float
    epsilon: float

    def indicators(self) -> torch.Tensor:
        """(ranks, documents)."""
        return rank_indicators(torch.tensor([self.scores], dtype=torch.float64), None, self.k, self.alpha, self.delta)[
            0
        ]


@st.composite
def cases(draw: st.DrawFn, whole: bool = False) -> Case:
    """Positive, distinct scores; K is from 2 to N, or N if `whole`; alpha is above the bound of (C1)."""
    ratios = draw(st.lists(st.floats(1.02, 4), min_size=1, max_size=7))
    scores = [draw(st.floats(0.05, 5))]
    for ratio in ratios:
        scores.append(scores[-1] * ratio)
    k = len(scores) if whole else draw(st.integers(2, len(scores)))
    delta = draw(st.floats(0.01, 0.49))
    beta = min(above / below for below, above in itertools.pairwise(scores))
    c = ((beta + 1) / 2) ** (1 / (k - 1))
    gamma = min(delta, 0.5 - delta, (1 - delta) * (c - 1) / (c + 1))
    rate = scores[0] / 2 ** (k - 1) * min(1, (beta - 1) / 2)
    alpha = draw(st.floats(1.001, 4)) * (math.log(k - 1) - math.log(gamma)) / rate
    order = draw(st.permutations(scores))
    labels = draw(st.lists(st.integers(0, 4), min_size=len(scores), max_size=len(scores)).filter(any))
    return Case(order, labels, k, delta, alpha, (k - 1) * math.exp(-alpha * rate))


def error(case: Case, metric: str) -> float:
    """|metric − smooth metric| of the list."""
    smooth = indicator_metric(list(case.indicators()), [float(label) for label in case.labels], metric)
    scores, labels = torch.tensor([case.scores], dtype=torch.float64), torch.tensor([case.labels])
    return abs(float(exact_metric(scores, labels, metric=metric)) - float(smooth))


@given(cases())
def test_theorem_2_bounds_the_error_of_indicators(case):
    order = torch.tensor(case.scores).argsort(descending=True)
    true = torch.nn.functional.one_hot(order[: case.k], len(case.scores))
    assert (case.indicators() - true).abs().max() <= case.epsilon + ROUNDING


@given(cases())
def test_corollary_1_bounds_the_error_of_precision(case):
    relevant = sum(label >= 1 for label in case.labels)
    assert error(case, f"p@{case.k}") <= relevant * case.epsilon + ROUNDING


@given(cases(whole=True))
def test_corollary_1_bounds_the_error_of_average_precision(case):
    documents = len(case.scores)
    assert error(case, "ap") <= 2 * documents * (case.epsilon + case.epsilon**2) + ROUNDING


@given(cases())
def test_corollary_1_bounds_the_error_of_ndcg(case):
    assert error(case, f"ndcg@{case.k}") <= len(case.scores) * case.epsilon + ROUNDING
