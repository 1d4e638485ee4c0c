"""Soft ranks: operators from scores to a real-valued rank for each document, and the metric of such ranks.

Scores, mask and soft ranks are (lists, documents). The best document has a rank of about 1; documents whose mask is
False have 0. A hyperparameter out of range raises ValueError.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rerank.losses.inputs import by_score, check_positive, mask_scores
from rerank.losses.kernels.soft_ranks import tiled_soft_ranks
from rerank.losses.metrics import Metric, discount, gain, ideal_dcg


def approx_soft_ranks(scores: Tensor, mask: Tensor | None = None, alpha: float = 1.0) -> Tensor:
    """1 + sum over j != i of sigma(alpha (S_j - S_i)) (Qin et al. 2010). The gradient can be taken once.

    Args:
        alpha: inverse temperature, above 0; the gradient of a pair vanishes if alpha |S_j − S_i| is large.
    """
    check_positive("alpha", alpha)
    return tiled_soft_ranks(*mask_scores(scores, mask), alpha)


def fast_soft_ranks(
    scores: Tensor, mask: Tensor | None = None, regularization: str = "l2", strength: float = 1.0
) -> Tensor:
    """The projection of -S / strength on the permutahedron of (N, ..., 1) (Blondel et al. 2020, soft rank).

    With z = -S / strength in descending order and w = (N, ..., 1), `l2` is z - v for v the non-increasing regression
    of z - w. `kl` is exp(z - v), for the non-increasing v that minimises sum exp(z - v) + sum w v: in a block of equal
    v, softmax(z) shares out the block's sum of w.

    Args:
        regularization: l2 or kl.
        strength: above 0; the smaller, the closer to the true ranks, and the fewer documents have a gradient.
    """
    check_positive("strength", strength)
    if regularization not in ("l2", "kl"):
        raise ValueError(f"regularization {regularization!r}: expected l2 or kl")
    scores, mask = mask_scores(scores, mask)
    order = by_score(-scores, mask)
    real = mask.gather(1, order)
    z = (-scores / strength).gather(1, order)
    w = mask.sum(dim=1, keepdim=True) - torch.arange(scores.shape[1], dtype=z.dtype, device=z.device)
    w = w.masked_fill(~real, 1)

    if regularization == "l2":
        gaps = z - w
        blocks = _decreasing_blocks(lambda blocks: _mean(gaps, blocks), real)
        ranked = w + gaps - _mean(gaps, blocks)
    else:
        blocks = _decreasing_blocks(lambda b: _log_sum_by_block(z, b) - _sum_by_block(w, b).log(), real)
        ranked = _sum_by_block(w, blocks) * torch.exp(z - _log_sum_by_block(z, blocks))
    return torch.zeros_like(scores).scatter(1, order, ranked.masked_fill(~real, 0))


def metric_from_soft_ranks(
    soft_ranks: Tensor, labels: Tensor, mask: Tensor, metric: Metric, beta: float, cutoff_offset: float
) -> Tensor:
    """The metric from soft ranks, (lists, documents) from 1 on, as (lists,) (Qin et al. 2010).

    `beta` is the inverse temperature, above 0, of the soft cut-off at rank K + `cutoff_offset` (P@K, NDCG@K) and of the
    comparison of ranks (AP), which compares relevant documents with each other alone. Labels are 0 on padding.
    """
    name, cutoff = metric
    relevant = (labels >= 1) & mask
    if name == "ap":
        relevant_ranks = tiled_soft_ranks(-soft_ranks, relevant, beta)
        return (relevant_ranks / soft_ranks.masked_fill(~relevant, 1)).sum(dim=1) / relevant.sum(dim=1).clamp_min(1)
    soft_ranks = soft_ranks.masked_fill(~mask, 1)
    within = torch.ones_like(soft_ranks)
    if cutoff is not None:
        within = torch.sigmoid(beta * (cutoff + cutoff_offset - soft_ranks))
    if name == "p" and cutoff is not None:
        return (relevant * within).sum(dim=1) / cutoff
    return (gain(labels) * discount(soft_ranks) * within).sum(dim=1) / ideal_dcg(labels, cutoff)


@torch.no_grad()
def _decreasing_blocks(level: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """The runs of equal values in the non-increasing isotonic solution, as block numbers: 0 for the first run, 1, ...

    Pooling in any order gives the solution, so each round pools every run of blocks whose levels do not decrease, in
    all lists. Random lists take a few rounds; at most, it takes as many as there are documents. `level` maps block
    numbers to the optimal value of each entry's block; all are (lists, documents). Real entries come first; the others
    never join.
    """
    blocks = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    while True:
        levels = level(blocks).masked_fill(~mask, -torch.inf)
        falls = levels[:, 1:] < levels[:, :-1]
        pooled = torch.cat([torch.zeros_like(blocks[:, :1]), falls.cumsum(dim=1)], dim=1)
        if torch.equal(pooled, blocks):
            return blocks
        blocks = pooled


def _sum_by_block(values: Tensor, blocks: Tensor) -> Tensor:
    return torch.zeros_like(values).scatter_add(1, blocks, values).gather(1, blocks)


def _log_sum_by_block(values: Tensor, blocks: Tensor) -> Tensor:
    """The logarithm of each entry's block sum of exp(values): (lists, documents)."""
    lowest = torch.full_like(values, -torch.inf)
    highest = lowest.scatter_reduce(1, blocks, values.detach(), "amax").gather(1, blocks)
    return highest + _sum_by_block(torch.exp(values - highest), blocks).log()


def _mean(values: Tensor, blocks: Tensor) -> Tensor:
    return _sum_by_block(values, blocks) / _sum_by_block(torch.ones_like(values), blocks)
