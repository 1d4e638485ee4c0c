"""The hinge against a sum over every pair, for any margin, with ties, scores on the kink and scores far away."""

import math

import pytest
import torch
from torch import Tensor

from rerank.losses import hinge
from tests.losses.graphs import value_and_gradient


def over_every_pair(scores: Tensor, labels: Tensor, mask: Tensor, margin: float) -> Tensor:
    """The mean over all pairs; a list with none has 0."""
    pairs = (labels[:, :, None] > labels[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    costs = torch.relu(margin - (scores[:, :, None] - scores[:, None, :])).masked_fill(~pairs, 0)
    return costs.sum(dim=(1, 2)) / pairs.sum(dim=(1, 2)).clamp_min(1)


@pytest.mark.parametrize("labels_of_a_list", [2, 5, 1000])
@pytest.mark.parametrize("documents", [2, 17, 200])
def test_it_is_the_mean_over_every_pair(labels_of_a_list: int, documents: int) -> None:
    """Labels are fractions too; scores are tied, lie on the kink (multiples of 1/4), or far from 0."""
    generator = torch.Generator().manual_seed(documents)
    scores = torch.tensor([1, 1, 1, 0.01, 30])[:, None] * torch.randn(5, documents, generator=generator).double()
    scores[0], scores[1], scores[2] = 0, (scores[1] * 4).round() / 4, scores[2] + 1000
    labels = torch.randint(0, labels_of_a_list, (5, documents), generator=generator).double()
    labels[3] /= 7
    labels[:, 0] = labels[:, 0] + 1
    mask = torch.rand(5, documents, generator=generator) < 0.8
    mask[:, 0] = True
    for margin in (1.0, 0.25, 0.0, -0.5):
        expected = value_and_gradient(over_every_pair, scores, labels, mask, margin)
        got = value_and_gradient(hinge, scores, labels, mask, margin)
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-12)


def test_the_kink_has_no_gradient() -> None:
    values, gradient = value_and_gradient(hinge, torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[1, 0, 0]]))
    assert values.item() == 0
    assert not gradient.any()


def test_a_score_far_away_that_costs_nothing_hides_nothing() -> None:
    for far in (1e30, math.inf):
        scores = torch.tensor([[far, 0.25, 0.5, -far]])
        values, gradient = value_and_gradient(hinge, scores, torch.tensor([[2, 1, 0, 0]]))
        assert values.item() == pytest.approx(1.25 / 5)
        assert gradient[0].tolist() == pytest.approx([0, -0.2, 0.2, 0])
