"""Rank indicators: operators from scores to a relaxed permutation I (lists, ranks, documents).

Scores and mask are (lists, documents); the mask is True on real documents. I_j^r is about 1 if document j has rank r.
Masked documents, and ranks beyond the number of documents, have 0, so that padding never changes a sum over ranks or
documents. A hyperparameter out of range raises ValueError.
"""

import math

import torch
from torch import Tensor

from rerank.losses.inputs import check_positive, mask_scores, masked_softmax
from rerank.losses.kernels.sinkhorn import COOLING, transport_plan
from rerank.losses.metrics import ranks_like

LEAST_EPSILON = 1e-9
"""Below it, cost / epsilon is rounded so much, even in float64, that the marginals of the plan cannot be checked."""


def rank_indicators(
    scores: Tensor,
    mask: Tensor | None = None,
    k: int | None = None,
    alpha: float = 1.0,
    delta: float = 0.1,
    stop_gradient: bool = True,
) -> Tensor:
    """SmoothI (Thonet et al. 2021, eq:defI): I^r = softmax(alpha S p^r), p^(r+1) = p^r (1 - I^r - delta), p^1 = 1.

    The scores are not shifted, although the theory needs positive ones; the loss subtracts their minimum.

    Args:
        k: number of ranks; all if it is None or exceeds the number of documents.
        alpha: inverse temperature, above 0.
        delta: how far a ranked document is pushed down for the following ranks, between 0 and 0.5, both excluded.
        stop_gradient: whether p is constant in the backward pass (eq:defI-modif).
    """
    check_recursion(alpha, delta)
    if k is not None and k < 1:
        raise ValueError(f"k must be 1 or more, got {k}")
    scores, mask = mask_scores(scores, mask)
    scaled = alpha * scores
    remaining = torch.ones_like(scores)
    rows = []
    for _ in range(min(k or scores.shape[1], scores.shape[1])):
        row = masked_softmax(scaled * remaining, mask)
        rows.append(row)
        remaining = remaining * (1 - (row.detach() if stop_gradient else row) - delta)
    return _within_list(torch.stack(rows, dim=1) if rows else scores[:, None, :], mask)


def neuralsort_indicators(scores: Tensor, mask: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """NeuralSort (Grover et al. 2019): row r is softmax_j(((N + 1 - 2r) S_j - sum_k |S_j - S_k|) / temperature).

    `temperature` is above 0. N is the number of real documents.
    """
    check_positive("temperature", temperature)
    scores, mask = mask_scores(scores, mask)
    gaps = (scores[:, :, None] - scores[:, None, :]).abs()
    spread = gaps.masked_fill(~mask[:, None, :], 0).sum(dim=2)
    ranks = ranks_like(scores, scores.shape[1])
    weights = mask.sum(dim=1)[:, None] + 1 - 2 * ranks
    logits = (weights[:, :, None] * scores[:, None, :] - spread[:, None, :]) / temperature
    return _within_list(masked_softmax(logits, mask[:, None, :]), mask)


def soft_permutation(scores: Tensor, mask: Tensor | None = None, epsilon: float = 0.01) -> Tensor:
    """Optimal transport from documents to ranks (Cuturi et al. 2019): N P, with P the entropic plan.

    x = sigma((S - mean) / std pi / sqrt(3)), with the population's standard deviation, at least 1e-6; the target of
    rank m is y_m = (N - m) / (N - 1), the cost (x_i - y_m)^2, both marginals uniform. The plan is solved in float64
    until the marginals hold to `kernels.sinkhorn.TOLERANCE`; rows and columns of the result sum to 1.

    Args:
        epsilon: weight of the entropic regularisation, 1e-9 or more; the smaller, the closer to a permutation.

    Raises:
        RuntimeError: the plan did not converge, for a very small epsilon.
    """
    check_epsilon(epsilon)
    scores, mask = mask_scores(scores, mask)
    count = mask.sum(dim=1, keepdim=True)
    centred = (scores - scores.sum(dim=1, keepdim=True) / count.clamp_min(1)).masked_fill(~mask, 0)
    variance = centred.square().sum(dim=1, keepdim=True) / count.clamp_min(1)
    x = torch.sigmoid(centred / variance.clamp_min(1e-12).sqrt() * (math.pi / math.sqrt(3)))
    targets = (count - ranks_like(scores, scores.shape[1])) / (count - 1).clamp_min(1)
    cost = (x[:, None, :] - targets[:, :, None]).square()
    # Costs are at most 1, so that an entropy of 0.1 is easy from any start.
    warm_starts = max(0, math.ceil(math.log(0.1 / epsilon, COOLING)))
    return transport_plan(-cost.double() / epsilon, mask, warm_starts).to(scores.dtype)


def check_recursion(alpha: float, delta: float) -> None:
    """Raises ValueError if a hyperparameter of `rank_indicators` is out of range."""
    check_positive("alpha", alpha)
    if not 0 < delta < 0.5:
        raise ValueError(f"delta must be between 0 and 0.5, both excluded, got {delta}")


def check_epsilon(epsilon: float) -> None:
    """Raises ValueError if epsilon is too small for a plan to be computed."""
    check_positive("epsilon", epsilon)
    if epsilon < LEAST_EPSILON:
        raise ValueError(f"epsilon must be {LEAST_EPSILON:g} or more, got {epsilon}")


def _within_list(rows: Tensor, mask: Tensor) -> Tensor:
    """Sets the rows beyond the number of documents of each list to 0."""
    beyond = torch.arange(rows.shape[1], device=rows.device) >= mask.sum(dim=1)[:, None]
    return rows.masked_fill(beyond[:, :, None], 0)
