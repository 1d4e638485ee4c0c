"""The expected label at each rank by SoftSort, with its gradient, without the whole permutation.

It takes O(documents log documents), because exp(-|S_r - S_j| / temperature) decays: the sum over the documents above is
the recursion F_k = x_k + exp(-(S_(k-1) - S_k) / temperature) F_(k-1), whose factors are at most 1. A scan computes it
in log2(documents) steps.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.losses.inputs import by_score, tie_bounds


def softsort_ranked(scores: Tensor, labels: Tensor, mask: Tensor, temperature: float, count: int) -> Tensor:
    """The expected label at each of `count` ranks, sum_j I_j^r y_j, for I^r = softmax_j(-|S_r - S_j| / temperature).

    Scores and labels are (lists, documents), 0 on padding; the labels have no gradient, and no list is empty. Returns
    (lists, ranks), 0 beyond the number of documents. The gradient can be taken once.
    """
    ranked: Tensor = _SoftSort.apply(scores, labels, mask, temperature, count)
    return ranked


class _SoftSort(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, mask: Tensor, temperature: float, count: int) -> Tensor:
        order = by_score(scores, mask)
        # In float64, which is cheap here, because a scan rounds at every step.
        ranked, real = scores.gather(1, order).double(), mask.gather(1, order)
        decay = torch.exp((ranked[:, 1:] - ranked[:, :-1]) / temperature).masked_fill_(~real[:, 1:], 0)
        y = torch.stack([labels.gather(1, order).double(), real.double()])
        above, below = _sides(y, decay)
        total, weight = above + y + below
        weight = weight.masked_fill(~real, 1)
        expected: Tensor = total / weight
        ctx.save_for_backward(order, ranked, decay, y, above, below, expected, weight)
        ctx.temperature = temperature
        return expected[:, :count].to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        order, ranked, decay, y, above, below, expected, weight = ctx.saved_tensors
        share = torch.zeros_like(ranked)
        share[:, : grad.shape[1]] = grad
        share = share / weight * y[1]
        # The logit of rank r and document j has the derivative share_r kernel_rj (y_j - e_r). It depends on
        # |S_r - S_j|, whose derivative is 0 for equal scores.
        x = torch.stack([share, share * expected])
        upper, lower = _sides(x, decay)
        first, last = tie_bounds(ranked)
        signed = torch.cat([lower, below]).gather(2, last.expand(4, -1, -1))
        signed -= torch.cat([upper, above]).gather(2, first.expand(4, -1, -1))
        slope = y[0] * signed[0] - signed[1] + share * (signed[2] - expected * signed[3])
        slope = (slope * y[1] / -ctx.temperature).to(grad.dtype)
        return torch.zeros_like(slope).scatter_(1, order, slope), None, None, None, None


def _sides(x: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of x_m exp(-|S_m - S_k| / temperature) over m < k and over m > k, each (sums, lists, documents)."""
    return _before(x, decay), _before(x.flip(2), decay.flip(1)).flip(2)


def _before(x: Tensor, decay: Tensor) -> Tensor:
    """The sums over m < k of x_m decay_(m+1) ... decay_k, with decay (lists, documents - 1) between neighbours."""
    sums, factor, step = x.clone(), F.pad(decay, (1, 0)), 1
    while step < x.shape[2]:
        sums[:, :, step:] += factor[:, step:] * sums[:, :, :-step]
        factor[:, step:] = factor[:, step:] * factor[:, :-step]
        step *= 2
    return F.pad(sums[:, :, :-1] * decay, (1, 0))
