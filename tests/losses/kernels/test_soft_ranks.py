"""Positions by tiles, and the AP of positions among the relevant documents only; `test_blocks` has the values."""

import pytest
import torch

from rerank.losses import approx_soft_ranks
from rerank.losses.kernels import soft_ranks as tiled_soft_ranks
from rerank.losses.kernels.soft_ranks import tiled_metric
from rerank.losses.metrics import Metric, metric_from_soft_ranks
from tests.losses.graphs import ragged_lists


def test_the_backward_pass_can_be_repeated() -> None:
    scores = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    places = tiled_soft_ranks.tiled_soft_ranks(scores, torch.ones(2, 5, dtype=torch.bool), 1.0)
    first, second = (torch.autograd.grad(places[:, 0].sum(), scores, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("scale", [1e30, 1e34])
def test_differences_beyond_float32_are_far_apart_and_no_more(scale: float) -> None:
    scores = torch.tensor([[scale, -scale, 0.0]]).requires_grad_()
    places = tiled_soft_ranks.tiled_soft_ranks(scores, torch.ones(1, 3, dtype=torch.bool), 1e3)
    assert places.tolist() == [[1.0, 3.0, 2.0]]
    assert not torch.autograd.grad(places[0, 0], scores)[0].any()


@pytest.mark.parametrize("metric", [Metric("ap", None), Metric("ndcg", 3), Metric("p", 2)])
def test_the_metric_is_that_of_all_pairs(metric: Metric) -> None:
    scores, labels, mask = ragged_lists(19)
    labels = labels.masked_fill(~mask, 0).double()
    places = approx_soft_ranks(scores, mask)
    given = tiled_metric(places, labels, mask, metric, 1.5, 0.5)
    expected = metric_from_soft_ranks(places, labels, mask, metric, 1.5, 0.5)
    torch.testing.assert_close(given, expected, rtol=1e-12, atol=1e-14)
