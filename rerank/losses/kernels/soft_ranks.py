"""The soft ranks of Approx at the cost of half the pairs, with an analytic gradient."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.losses.inputs import by_score
from rerank.losses.kernels.autograd import wants_gradient

ROWS = 210
"""Documents in a tile: a tile of 1,251 columns still fits into the cache, and there are few calls."""


def tiled_soft_ranks(scores: Tensor, mask: Tensor, alpha: float) -> Tensor:
    """1 + sum over j != i of sigma(alpha (S_j - S_i)) (Qin et al. 2010).

    With documents sorted by descending score, the pairs right of the diagonal suffice, as sigma(-x) = 1 - sigma(x); the
    smaller of the two is computed. The slopes sigma (1 - sigma) of these pairs, one half of (documents x documents) a
    list, are kept for the backward pass. Scores, mask and result are (lists, documents); documents whose mask is False
    are not compared and have 0. The gradient can be taken once.
    """
    soft_ranks: Tensor = _SoftRanks.apply(scores, mask, alpha, wants_gradient(scores))
    return soft_ranks


def tile_entries(documents: int) -> int:
    """The size of the largest tile of one list, for `blocks.in_blocks`."""
    return documents * min(documents, ROWS)


class _SoftRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, alpha: float, needs_gradient: bool) -> Tensor:
        order = by_score(scores, mask)[:, : max(mask.sum(dim=1).tolist(), default=0)]
        real = mask.gather(1, order)
        ranked = scores.gather(1, order)
        # Padding is far below the last document, so that it is before no document; the clamp keeps differences finite.
        lowest = torch.finfo(scores.dtype).min / 8
        ranked = (alpha * (ranked - ranked[:, :1])).clamp_min(lowest).masked_fill(~real, 2 * lowest)
        ranks = torch.full_like(ranked, 0.5)
        slopes = []
        for start in range(0, ranked.shape[1], ROWS):
            rows = ranked[:, start : start + ROWS, None]
            stop = start + rows.shape[1]
            before = torch.sigmoid_(ranked[:, None, start:] - rows)
            # The document itself adds sigma(0) = 1/2 to the sum over the others.
            ranks[:, start:stop] += before.sum(dim=2)
            ranks[:, stop:] += (stop - start) - before[:, :, stop - start :].sum(dim=1)
            if needs_gradient:
                slopes.append(before.addcmul_(before, before, value=-1))
        ctx.alpha, ctx.order, ctx.shape, ctx.slopes = alpha, order, scores.shape, slopes
        ctx.real = real
        return torch.zeros_like(scores).scatter_(1, order, ranks.masked_fill_(~real, 0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        grad = grad.gather(1, ctx.order).masked_fill(~ctx.real, 0)
        # dS_k = alpha sum_i slope_ik (g_i - g_k): both sums in one product.
        weights = torch.stack([grad, torch.ones_like(grad)], dim=1)
        sums = torch.zeros_like(weights)
        start = 0
        for slope in ctx.slopes:
            stop = start + slope.shape[1]
            sums[:, :, start:stop] += weights[:, :, start:] @ slope.mT
            sums[:, :, stop:] += weights[:, :, start:stop] @ slope[:, :, stop - start :]
            start = stop
        ranked = (ctx.alpha * (sums[:, 0] - grad * sums[:, 1])).masked_fill_(~ctx.real, 0)
        return grad.new_zeros(ctx.shape).scatter_(1, ctx.order, ranked), None, None, None
