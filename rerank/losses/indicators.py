"""Rank indicators: operators from scores to a relaxed permutation I (lists, ranks, documents).

Scores and mask are (lists, documents); the mask is True on real documents. I_j^r is about 1 if document j has rank r.
It is 0 for masked documents and for ranks beyond the number of documents, so padding never changes a sum over ranks or
documents. A hyperparameter out of range raises ValueError.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.losses.inputs import check_positive, mask_scores, masked_softmax
from rerank.losses.metrics import ranks_like

TOLERANCE = 1e-12
"""The largest deviation of a column sum from 1 at which the plan is accepted; rows sum to 1 up to rounding."""

ROUNDS = 500
"""Maximum number of sweeps and Newton steps per entropy; random scores with epsilon 1e-4 need about 30 in total."""

COOLING = 4.0
"""Ratio of the entropies of two consecutive warm starts."""

SCALINGS = 50
"""Scalings of `scaled_indicators`, the maximum of the authors' code, which may stop at a tolerance."""

RIDGE = 1e-13
"""Added to the diagonal of the Newton matrix, which is singular if the plan is a permutation up to rounding."""


def rank_indicators(
    scores: Tensor,
    mask: Tensor | None = None,
    k: int | None = None,
    alpha: float = 1.0,
    delta: float = 0.1,
    stop_gradient: bool = True,
) -> Tensor:
    """SmoothI (Thonet et al. 2021, eq:defI): I^r = softmax(alpha S p^r), p^(r+1) = p^r (1 - I^r - delta), p^1 = 1.

    The theory needs positive scores; this function does not shift them, the loss `smoothi` subtracts their minimum.

    Args:
        k: number of ranks; all if it is None or exceeds the number of documents.
        alpha: inverse temperature, above 0.
        delta: how far a ranked document is pushed down for the following ranks, between 0 and 0.5, both excluded.
        stop_gradient: whether p is constant in the backward pass (eq:defI-modif).

    >>> rank_indicators(torch.tensor([[1.0, 3.0]]), alpha=10.0).round(decimals=2)
    tensor([[[0., 1.],
             [1., 0.]]])
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

    >>> neuralsort_indicators(torch.tensor([[1.0, 3.0]]), temperature=0.1).round(decimals=2)
    tensor([[[0., 1.],
             [1., 0.]]])
    """
    check_positive("temperature", temperature)
    scores, mask = mask_scores(scores, mask)
    gaps = (scores[:, :, None] - scores[:, None, :]).abs()
    spread = gaps.masked_fill(~mask[:, None, :], 0).sum(dim=2)
    ranks = ranks_like(scores, scores.shape[1])
    weights = mask.sum(dim=1)[:, None] + 1 - 2 * ranks
    logits = (weights[:, :, None] * scores[:, None, :] - spread[:, None, :]) / temperature
    return _within_list(masked_softmax(logits, mask[:, None, :]), mask)


def scaled_indicators(rows: Tensor) -> Tensor:
    """Indicators divided by the sums of their columns and rows in turn, SCALINGS times (Sinkhorn), rows last.

    The memory is that of a few copies of the indicators. The gradient can be taken once.

    >>> scaled_indicators(torch.tensor([[[0.6, 0.4], [0.2, 0.8]]])).sum(dim=1).round(decimals=2)
    tensor([[1., 1.]])
    """
    scaled: Tensor = _Scaled.apply(rows)
    return scaled


def soft_permutation(scores: Tensor, mask: Tensor | None = None, epsilon: float = 0.01) -> Tensor:
    """Optimal transport from documents to ranks (Cuturi et al. 2019): N P, with P the entropic plan.

    x = sigma((S - mean) / std pi / sqrt(3)), with the population's standard deviation, at least 1e-6; the target of
    rank m is y_m = (N - m) / (N - 1), the cost (x_i - y_m)^2, both marginals uniform. The plan is solved in float64
    until each column sum differs from 1 by at most TOLERANCE plus the costs' rounding. The gradient can be taken once.

    Args:
        epsilon: weight of the entropic regularisation, above 0; the smaller, the closer to a permutation.

    Raises:
        RuntimeError: the plan did not converge, for a very small epsilon.

    >>> soft_permutation(torch.tensor([[1.0, 3.0]])).round(decimals=2)
    tensor([[[0., 1.],
             [1., 0.]]])
    """
    check_positive("epsilon", epsilon)
    scores, mask = mask_scores(scores, mask)
    if not scores.numel():
        return scores[:, None, :].expand(-1, scores.shape[1], -1)
    count = mask.sum(dim=1, keepdim=True)
    centred = (scores - scores.sum(dim=1, keepdim=True) / count.clamp_min(1)).masked_fill(~mask, 0)
    variance = centred.square().sum(dim=1, keepdim=True) / count.clamp_min(1)
    x = torch.sigmoid(centred / variance.clamp_min(1e-12).sqrt() * (math.pi / math.sqrt(3)))
    targets = (count - ranks_like(scores, scores.shape[1])) / (count - 1).clamp_min(1)
    cost = (x[:, None, :] - targets[:, :, None]).square()
    # Costs are at most 1, so with an entropy of 0.1 the rounds converge from any start.
    warm_starts = max(0, math.ceil(math.log(0.1 / epsilon, COOLING)))
    plan: Tensor = _Plan.apply(-cost.double() / epsilon, mask, warm_starts)
    return plan.to(scores.dtype)


def check_recursion(alpha: float, delta: float) -> None:
    """Raises ValueError if a hyperparameter of `rank_indicators` is out of range."""
    check_positive("alpha", alpha)
    if not 0 < delta < 0.5:
        raise ValueError(f"delta must be between 0 and 0.5, both excluded, got {delta}")


def _within_list(rows: Tensor, mask: Tensor) -> Tensor:
    """Sets the rows beyond the number of documents of each list to 0."""
    return rows.masked_fill(~_real_rows(mask)[:, : rows.shape[1], None], 0)


class _Scaled(torch.autograd.Function):
    """The indicators after all scalings; keeps the sums only, from which backward makes the earlier ones again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows, sums = rows.clone(), list[Tensor]()
        for step in range(2 * SCALINGS):
            total = rows.sum(dim=1 + step % 2, keepdim=True)
            sums.append(total.masked_fill_(total == 0, 1))  # padding has no indicator
            rows /= total
        ctx.save_for_backward(rows, *sums)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        rows, *sums = ctx.saved_tensors
        rows, grad = rows.clone(), grad.clone()
        for step in reversed(range(2 * SCALINGS)):
            grad -= (grad * rows).sum(dim=1 + step % 2, keepdim=True)
            grad /= sums[step]
            rows *= sums[step]
        return grad


class _Plan(torch.autograd.Function):
    """The plan Q = exp(u_m + K_mi + v_i), whose rows and columns sum to 1, of the logits K = -cost / epsilon.

    Plain Sinkhorn needs thousands of sweeps when the entropy is small. Here a Newton step on the columns follows each
    sweep, after `warm_starts` solves with larger entropies. A list has as many real rows as real columns, and its real
    rows come first. The gradient solves the linearised marginal conditions instead of unrolling the rounds.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mask: Tensor, warm_starts: int) -> Tensor:
        pairs = _real_rows(mask)[:, :, None] & mask[:, None, :]
        logits = logits.masked_fill(~pairs, -torch.inf)
        rounding = torch.finfo(logits.dtype).eps * logits.masked_fill(~pairs, 0).abs_().amax(dim=(1, 2))
        columns = torch.zeros_like(logits[:, 0])
        for stage in range(warm_starts, -1, -1):
            tolerance = TOLERANCE + rounding if stage == 0 else torch.full_like(rounding, 0.1)
            plan, columns = _solve(logits / COOLING**stage, mask, columns, tolerance)
            columns = columns * COOLING
        ctx.save_for_backward(plan, mask)
        return plan

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        plan, mask = ctx.saved_tensors
        weighted = plan * grad
        rows, columns = weighted.sum(dim=2), weighted.sum(dim=1)
        v = _newton(plan, mask, columns - (plan * rows[:, :, None]).sum(dim=1))
        u = rows - (plan * v[:, None, :]).sum(dim=2)
        return weighted - plan * (u[:, :, None] + v[:, None, :]), None, None


def _solve(logits: Tensor, mask: Tensor, columns: Tensor, tolerance: Tensor) -> tuple[Tensor, Tensor]:
    """The plan and its column potentials, starting from the given potentials."""
    for step in range(ROUNDS):
        plan = torch.softmax(logits + columns[:, None, :], dim=2).masked_fill_(~_real_rows(mask)[:, :, None], 0)
        sums = plan.sum(dim=1)
        missing = (1 - sums).masked_fill(~mask, 0)
        # A NaN makes the comparison False: the search ends and the result contains the NaN.
        if not (missing.abs().amax(dim=1) > tolerance).any():
            return plan, columns
        if step % 2 == 0:
            columns = columns - sums.masked_fill(~mask, 1).clamp_min(torch.finfo(sums.dtype).tiny).log()
        else:
            change = _newton(plan, mask, missing)
            columns = columns + change * (5 / change.abs().amax(dim=1, keepdim=True)).clamp_max(1)
    raise RuntimeError(f"the transport plan did not converge in {ROUNDS} rounds: take a larger epsilon")


def _newton(plan: Tensor, mask: Tensor, right: Tensor) -> Tensor:
    """Solves (diag(column sums) - Q'Q) v = right on the real columns, up to a constant; right has the mean 0."""
    real = mask.to(plan.dtype)
    matrix = real[:, :, None] * real[:, None, :] / mask.sum(dim=1).clamp_min(1)[:, None, None] - plan.mT @ plan
    # The sums come from the plan itself, so that the matrix is a Laplacian up to rounding.
    matrix = matrix + torch.diag_embed(torch.where(mask, plan.sum(dim=1) + RIDGE, 1.0))
    # One list at a time: with several threads torch's batched elimination fails from 151 columns (pytorch #142815).
    return torch.stack([torch.linalg.solve(left, values) for left, values in zip(matrix, right, strict=True)])


def _real_rows(mask: Tensor) -> Tensor:
    return torch.arange(mask.shape[1], device=mask.device) < mask.sum(dim=1)[:, None]
