"""Soft ranks: operators from scores to a real-valued rank for each document, and the metric of such ranks.

Scores, mask and soft ranks are (lists, documents). The best document has a rank of about 1, a masked one 0. A
hyperparameter out of range raises ValueError.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.losses.inputs import by_score, check_positive, mask_scores
from rerank.losses.metrics import Metric, discount, gain, highest, normaliser

ROWS = 210
"""Documents in a tile: a tile of 1,251 columns still fits into the cache, and there are few calls."""


def approx_soft_ranks(scores: Tensor, mask: Tensor | None = None, alpha: float = 1.0) -> Tensor:
    """1 + sum over j != i of sigma(alpha (S_j - S_i)) (Qin et al. 2010). The gradient can be taken once.

    Args:
        alpha: inverse temperature, above 0; the gradient of a pair vanishes if alpha |S_j − S_i| is large.

    >>> approx_soft_ranks(torch.tensor([[2.0, 1.0, 0.0]]))
    tensor([[1.3881, 2.0000, 2.6119]])
    """
    check_positive("alpha", alpha)
    soft_ranks: Tensor = _SoftRanks.apply(*mask_scores(scores, mask), alpha)
    return soft_ranks


def tile_entries(documents: int) -> int:
    """The size of the largest tile of one list, for `blocks.in_blocks`."""
    return documents * min(documents, ROWS)


def fast_soft_ranks(scores: Tensor, mask: Tensor | None = None, strength: float = 1.0) -> Tensor:
    """The l2 projection of -S / strength on the permutahedron of (N, ..., 1) (Blondel et al. 2020, soft rank).

    With z = -S / strength in descending order and w = (N, ..., 1), it is z - v, where v is the non-increasing isotonic
    regression of z - w.

    Args:
        strength: above 0; the smaller, the closer to the true ranks, and the fewer documents have a gradient.

    >>> fast_soft_ranks(torch.tensor([[2.0, 1.0, 0.0]]), strength=4.0)
    tensor([[1.7500, 2.0000, 2.2500]])
    """
    check_positive("strength", strength)
    scores, mask = mask_scores(scores, mask)
    order = by_score(-scores, mask)
    real = mask.gather(1, order)
    z = (-scores / strength).gather(1, order)
    w = mask.sum(dim=1, keepdim=True) - torch.arange(scores.shape[1], dtype=z.dtype, device=z.device)
    w = w.masked_fill(~real, 1)
    gaps = z - w
    ranked = w + gaps - _mean(gaps, _decreasing_blocks(gaps, real))
    return torch.zeros_like(scores).scatter(1, order, ranked.masked_fill(~real, 0))


def metric_from_soft_ranks(
    soft_ranks: Tensor, labels: Tensor, mask: Tensor, metric: Metric, beta: float, cutoff_offset: float
) -> Tensor:
    """The metric from soft ranks, (lists, documents) from 1 on, as (lists,) (Qin et al. 2010).

    `beta` is the inverse temperature, above 0, of the soft cut-off at rank K + `cutoff_offset` (P@K, NDCG@K) and of the
    comparison of ranks (AP, RR). Only relevant documents are compared with each other. Labels are 0 on padding. RR is
    Σ_i 1 / π_i Π_{j≠i} σ(β (π_j − π_i)) over the relevant documents i and j.
    """
    name, cutoff = metric
    relevant = (labels >= 1) & mask
    if name == "ap":
        relevant_ranks = approx_soft_ranks(-soft_ranks, relevant, beta)
        return (relevant_ranks / soft_ranks.masked_fill(~relevant, 1)).sum(dim=1) / normaliser(labels, metric)
    soft_ranks = soft_ranks.masked_fill(~mask, 1)
    if name == "rr":
        terms = _first_relevant(soft_ranks, relevant, beta) / soft_ranks
    else:
        terms = relevant if name == "p" else gain(labels, highest(labels)) * discount(soft_ranks)
    if cutoff is not None:
        terms = terms * torch.sigmoid(beta * (cutoff + cutoff_offset - soft_ranks))
    return terms.sum(dim=1) / normaliser(labels, metric)


def _first_relevant(soft_ranks: Tensor, relevant: Tensor, beta: float) -> Tensor:
    """The degree, from 0 to 1, to which each document is the first relevant one: (lists, documents)."""
    before = F.logsigmoid(beta * (soft_ranks[:, None, :] - soft_ranks[:, :, None]))
    others = relevant[:, None, :] & ~torch.eye(relevant.shape[1], dtype=torch.bool, device=relevant.device)
    return before.masked_fill(~others, 0).sum(dim=2).exp() * relevant


@torch.no_grad()
def _decreasing_blocks(values: Tensor, mask: Tensor) -> Tensor:
    """The blocks of equal values in the non-increasing isotonic regression, as numbers 0, 1, ...

    Pooling in any order gives the solution, so each round pools all neighbouring blocks whose means do not decrease, in
    all lists. Random lists take a few rounds. Real entries come first; masked ones are never pooled.
    """
    blocks = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    while True:
        means = _mean(values, blocks).masked_fill(~mask, -torch.inf)
        falls = means[:, 1:] < means[:, :-1]
        pooled = torch.cat([torch.zeros_like(blocks[:, :1]), falls.cumsum(dim=1)], dim=1)
        if torch.equal(pooled, blocks):
            return blocks
        blocks = pooled


def _mean(values: Tensor, blocks: Tensor) -> Tensor:
    """The mean of each entry's block: (lists, documents)."""
    sums, counts = (torch.zeros_like(values).scatter_add(1, blocks, x) for x in (values, torch.ones_like(values)))
    return sums.gather(1, blocks) / counts.gather(1, blocks)


class _SoftRanks(torch.autograd.Function):
    """`approx_soft_ranks` in tiles.

    With documents sorted by descending score, the pairs right of the diagonal suffice, since sigma(-x) = 1 - sigma(x);
    the smaller of the two is computed. The slopes sigma (1 - sigma) of these pairs, half of (documents x documents) per
    list, are kept for the backward pass. Masked documents are not compared.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, alpha: float) -> Tensor:
        order = by_score(scores, mask)[:, : max(mask.sum(dim=1).tolist(), default=0)]
        real = mask.gather(1, order)
        ranked = scores.gather(1, order)
        # Padding is far below the last document, so it precedes no document; the clamp keeps differences finite.
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
            if ctx.needs_input_grad[0]:
                slopes.append(before.addcmul_(before, before, value=-1))
        ctx.alpha, ctx.order, ctx.shape, ctx.slopes = alpha, order, scores.shape, slopes
        ctx.real = real
        return torch.zeros_like(scores).scatter_(1, order, ranks.masked_fill_(~real, 0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        grad = grad.gather(1, ctx.order).masked_fill(~ctx.real, 0)
        # dS_k = alpha sum_i slope_ik (g_i - g_k): one product computes both sums.
        weights = torch.stack([grad, torch.ones_like(grad)], dim=1)
        sums = torch.zeros_like(weights)
        start = 0
        for slope in ctx.slopes:
            stop = start + slope.shape[1]
            sums[:, :, start:stop] += weights[:, :, start:] @ slope.mT
            sums[:, :, stop:] += weights[:, :, start:stop] @ slope[:, :, stop - start :]
            start = stop
        ranked = (ctx.alpha * (sums[:, 0] - grad * sums[:, 1])).masked_fill_(~ctx.real, 0)
        return grad.new_zeros(ctx.shape).scatter_(1, ctx.order, ranked), None, None
