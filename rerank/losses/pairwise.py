"""Losses over the pairs of documents (i, j) of a list with label_i > label_j: the mean of a function of S_i - S_j."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rerank.losses.analytic import wants_gradient, with_gradient
from rerank.losses.lists import prepared
from rerank.losses.pair_counts import hinge_sums


def hinge(scores: Tensor, labels: Tensor, mask: Tensor | None = None, margin: float = 1.0) -> Tensor:
    """The mean over pairs of max(0, margin - (S_i - S_j)).

    Args:
        scores: (lists, documents).
        labels: (lists, documents), graded.
        mask: (lists, documents), True on real documents; masked entries may hold anything.
        margin: how far apart a pair must be to cost nothing.

    Returns:
        (lists,); 0 where a list has no relevant document or no pair.
    """
    scores, labels, mask, idle = prepared(scores, labels, mask)
    with torch.no_grad():
        sums, slopes, pairs = hinge_sums(scores, labels, mask, margin)
        pairs = pairs.clamp_min(1)
        values, gradient = (sums / pairs).to(scores.dtype), (slopes / pairs[:, None]).to(scores.dtype)
    return with_gradient(scores, values, gradient).masked_fill(idle, 0)


def ranknet(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """The mean over pairs of ln(1 + exp(S_j - S_i)) (Burges et al. 2005). Arguments and result as `hinge`."""
    return _mean_over_pairs(lambda gaps: -F.logsigmoid(gaps), scores, labels, mask)


def pairwise_softmax(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """The mean over pairs of 1 - softmax([S_i, S_j])_i, what CEDR's public code trains with.

    Arguments and result as `hinge`.
    """
    return _mean_over_pairs(lambda gaps: torch.sigmoid(-gaps), scores, labels, mask)


def _mean_over_pairs(cost: Callable[[Tensor], Tensor], scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    scores, labels, mask, idle = prepared(scores, labels, mask)
    pairs = (labels[:, :, None] > labels[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    costs = cost(scores[:, :, None] - scores[:, None, :]).masked_fill(~pairs, 0)
    return (costs.sum(dim=(1, 2)) / pairs.sum(dim=(1, 2)).clamp_min(1)).masked_fill(idle, 0)
