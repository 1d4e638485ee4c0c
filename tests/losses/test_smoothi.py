"""The one pass over the ranks against autograd through the rank indicators."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch import Tensor

from rerank.losses import smoothi
from rerank.losses.kernels import smoothi as smoothi_pass
from tests.losses.graphs import loss_of, value_and_gradient

METRICS = ["p@700", "ndcg@10", "ap"]
graph = partial(loss_of, "smoothi")


def mixed_lists(documents: int, lists: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Tied scores, scores on a grid so that the lowest is shared, masked documents of NaN, and a list to set aside."""
    generator = torch.Generator().manual_seed(documents)
    scores = torch.randn(lists, documents, generator=generator, dtype=torch.float64)
    scores[0], scores[1] = 0, scores[1].round()
    labels = torch.randint(0, 5, (lists, documents), generator=generator)
    labels[-1] = 0
    kept = torch.tensor([1, 1, 1, 0.5, 0.8, 1])[:lists, None]
    mask = torch.rand(lists, documents, generator=generator) < kept
    return scores.masked_fill(~mask, math.nan), labels, mask


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("documents", [1, 3, 20, 147])
def test_value_and_gradient_are_those_of_the_graph(metric: str, documents: int) -> None:
    scores, labels, mask = mixed_lists(documents)
    for alpha, delta in itertools.product([0.01, 1.0, 1e4], [0.01, 0.49]):
        expected = value_and_gradient(graph, scores, labels, mask, metric, alpha=alpha, delta=delta)
        got = value_and_gradient(smoothi, scores, labels, mask, metric, alpha, delta)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("alpha", [1.0, 1e4])
def test_the_closed_tail_of_a_long_list_is_that_of_the_graph(metric: str, alpha: float) -> None:
    scores, labels, mask = mixed_lists(700, lists=4)
    expected = value_and_gradient(graph, scores, labels, mask, metric, alpha=alpha)
    got = value_and_gradient(smoothi, scores, labels, mask, metric, alpha)
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)
    # The terms of a sharp gradient are as large as alpha, and may all cancel.
    error = (got[1] - expected[1]).norm(dim=1)
    assert (error <= 1e-12 * expected[1].norm(dim=1) + 1e-16 * alpha).all()


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 130), (torch.float64, 220)])
def test_the_number_of_ranks_that_are_visited_does_not_grow_with_the_list(
    dtype: torch.dtype, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels, _ = mixed_lists(1251)
    calls = []
    softmax = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda *given, **named: (calls.append(1), softmax(*given, **named))[1])
    smoothi(scores[2:3].to(dtype), labels[2:3])
    assert 50 < len(calls) < most


@pytest.mark.parametrize("metric", METRICS)
def test_float32_is_close_to_float64(metric: str) -> None:
    scores, labels, mask = mixed_lists(700)
    scores = scores.float()
    values, gradient = value_and_gradient(smoothi, scores, labels, mask, metric, 2.0)
    expected, expected_gradient = value_and_gradient(smoothi, scores.double(), labels, mask, metric, 2.0)
    torch.testing.assert_close(values.double(), expected, rtol=2e-6, atol=2e-6)
    error = (gradient.double() - expected_gradient).norm(dim=1)
    assert (error <= 1e-5 * expected_gradient.norm(dim=1) + 1e-12).all()


@pytest.mark.parametrize("metric", METRICS)
def test_blocks_of_lists_change_nothing(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels, mask = mixed_lists(20)
    expected = value_and_gradient(smoothi, scores, labels, mask, metric)
    for size in (1, 40, 50):
        monkeypatch.setattr(smoothi_pass, "BLOCK", size)
        got = value_and_gradient(smoothi, scores, labels, mask, metric)
        torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-14)


def test_an_infinite_score_shows_in_its_list_only() -> None:
    scores, labels = torch.rand(2, 9), torch.ones(2, 9)
    scores[0, 3] = math.inf
    values, gradient = value_and_gradient(smoothi, scores, labels)
    assert values[0].isnan()
    assert gradient[0].isnan().any()
    assert values[1].isfinite()
    assert gradient[1].isfinite().all()
