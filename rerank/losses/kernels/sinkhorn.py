"""Entropic optimal transport with unit marginals, in the log domain, with the implicit gradient.

The plan is Q = exp(u_m + K_mi + v_i) with rows and columns that sum to 1. Sinkhorn's sweeps alone need thousands of
rounds when the entropy is small; here each sweep is followed by a Newton step on the columns, after a warm start from
larger entropies. The gradient solves the linearised marginal conditions instead of unrolling the rounds.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TOLERANCE = 1e-12
"""The largest deviation of a column sum from 1 at which the plan is accepted; rows sum to 1 up to rounding."""

ROUNDS = 500
"""Sweeps and Newton steps per entropy; about 30 are used in all where scores are random and epsilon is 1e-4."""

COOLING = 4.0
"""The factor from one warm start's entropy to the next."""

RIDGE = 1e-13
"""Added to the diagonal of the Newton matrix, which is singular if the plan is a permutation up to rounding."""


def transport_plan(logits: Tensor, mask: Tensor, warm_starts: int) -> Tensor:
    """The plan with unit marginals that is proportional, by rows and by columns, to exp(logits).

    Solved in float64 until no column sum is further from 1 than TOLERANCE plus the rounding of the logits.

    The logits, (lists, rows, columns), are -cost / epsilon; a list has as many real rows, which come first, as real
    columns. `warm_starts` is the number of solves with larger entropies before, each COOLING times the next one.
    Returns float64 of the logits' shape, 0 on masked rows and columns. The gradient can be taken once. Raises
    RuntimeError if the plan did not converge.
    """
    plan: Tensor = _Plan.apply(logits.double(), mask, warm_starts)
    return plan


class _Plan(torch.autograd.Function):
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
        # With NaN the comparison is False, so that the search ends and the NaN is in the result.
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
