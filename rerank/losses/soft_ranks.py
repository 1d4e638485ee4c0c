"""Soft ranks: operators from scores to a real-valued rank for each document, (lists, documents).

The best document has a rank of about 1; documents whose mask is False have 0. A hyperparameter out of range raises
ValueError.
"""

import torch
from torch import Tensor

from rerank.losses.inputs import by_score, check_positive, mask_scores
from rerank.losses.kernels.isotonic import decreasing_blocks, log_sum_by_block, sum_by_block


def approx_soft_ranks(scores: Tensor, mask: Tensor | None = None, alpha: float = 1.0) -> Tensor:
    """1 + sum over j != i of sigma(alpha (S_j - S_i)) (Qin et al. 2010).

    Args:
        alpha: inverse temperature, above 0; the gradient of a pair vanishes if alpha |S_j − S_i| is large.
    """
    check_positive("alpha", alpha)
    scores, mask = mask_scores(scores, mask)
    before = torch.sigmoid(alpha * (scores[:, None, :] - scores[:, :, None])).masked_fill(~mask[:, None, :], 0)
    # The document itself adds sigma(0) = 1/2 to the sum over the others.
    return (0.5 + before.sum(dim=2)).masked_fill(~mask, 0)


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
        blocks = decreasing_blocks(lambda blocks: _mean(gaps, blocks), real)
        ranked = w + gaps - _mean(gaps, blocks)
    else:
        blocks = decreasing_blocks(lambda b: log_sum_by_block(z, b) - sum_by_block(w, b).log(), real)
        ranked = sum_by_block(w, blocks) * torch.exp(z - log_sum_by_block(z, blocks))
    return torch.zeros_like(scores).scatter(1, order, ranked.masked_fill(~real, 0))


def _mean(values: Tensor, blocks: Tensor) -> Tensor:
    return sum_by_block(values, blocks) / sum_by_block(torch.ones_like(values), blocks)
