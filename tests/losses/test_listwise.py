"""ListAP counts a score in the bins around it only: the same as in all bins, on centres and edges too."""

import pytest
import torch
from torch import Tensor

from rerank.losses import listap
from tests.losses.graphs import ragged_lists


def in_all_bins(scores: Tensor, labels: Tensor, mask: Tensor, bins: int, low: float, high: float) -> Tensor:
    step = (high - low) / (bins - 1)
    centres = high - step * torch.arange(bins, dtype=scores.dtype)
    inside = torch.relu(1 - (scores.clamp(low, high)[:, :, None] - centres).abs() / step) * mask[:, :, None]
    found, seen = (inside * (labels >= 1)[:, :, None]).sum(dim=1), inside.sum(dim=1).cumsum(dim=1)
    precision = found.cumsum(dim=1) / seen.masked_fill(seen == 0, 1)
    return 1 - (found * precision).sum(dim=1) / ((labels >= 1) & mask).sum(dim=1)


@pytest.mark.parametrize(("bins", "low", "high"), [(2, -1.0, 1.0), (25, -1.0, 1.0), (7, -2.0, 0.3), (9, -1.0, 1.0)])
def test_listap_in_the_bins_around_a_score_is_that_in_all_bins(bins: int, low: float, high: float) -> None:
    scores, labels, mask = ragged_lists(60)
    scores, labels, mask = scores.detach()[[0, 1, 3, 4]], labels[[0, 1, 3, 4]], mask[[0, 1, 3, 4]]
    step = (high - low) / (bins - 1)
    on_centres = high - step * torch.arange(60, dtype=torch.float64).remainder(bins)
    scores = torch.where(mask, scores, 0.0)
    scores[2] = on_centres
    scores[3] = on_centres - step / 2
    scores.requires_grad_()
    values, expected = listap(scores, labels, mask, bins, low, high), in_all_bins(scores, labels, mask, bins, low, high)
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-14)
    gradients = [torch.autograd.grad(given.sum(), scores)[0] for given in (values, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)
    assert gradients[0].any()
