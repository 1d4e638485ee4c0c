"""Batch norm and a linear layer with one output, taken together: a score is one product with the hidden values.

Both are linear in each document's hidden values h once the mean and the variance are known, so that neither the
normalised values nor their gradient is ever made: on a CPU a training step of the paper's network takes a third less.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def normalised_scores(hidden: Tensor, norm: nn.BatchNorm1d, output: nn.Linear) -> Tensor:
    """`output(norm(hidden))[:, 0]` in float32 or above: (documents,).

    In training with the mean and variance of `hidden`, (documents, units), whose running values it updates; else with
    the running ones.
    """
    mean, variance = norm.running_mean, norm.running_var
    hidden = hidden.to(norm.weight.dtype)
    with torch.autocast(hidden.device.type, enabled=False):  # bf16 would let scores fall on a dozen values
        parameters = norm.weight, norm.bias, output.weight[0], output.bias[0]
        if norm.training:
            scores: Tensor = _InTraining.apply(hidden, *parameters, mean, variance, norm.momentum, norm.eps)
            return scores
        return _scores(hidden, *parameters, mean, (variance + norm.eps).rsqrt())


def _scores(h: Tensor, gamma: Tensor, beta: Tensor, w: Tensor, c: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    slope = gamma * inverse * w
    return h @ slope + (c + beta @ w - mean @ slope)


class _InTraining(torch.autograd.Function):
    """S = c + sum_u w_u (gamma_u x_u + beta_u), x = (h - mean) inverse, with the mean and variance of h itself."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        gamma: Tensor,
        beta: Tensor,
        w: Tensor,
        c: Tensor,
        running_mean: Tensor,
        running_variance: Tensor,
        momentum: float,
        eps: float,
    ) -> Tensor:
        mean, variance = torch.ops.aten.batch_norm_update_stats(h, running_mean, running_variance, momentum)
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(h, gamma, beta, w, mean, inverse)
        return _scores(h, gamma, beta, w, c, mean, inverse)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        h, gamma, beta, w, mean, inverse = ctx.saved_tensors
        total = gradient.sum()
        along = (gradient @ h - total * mean) * inverse  # sum over the documents of dS x
        slope = gamma * inverse * w
        # Of a document: slope (dS - total / n - x along / n), where x is linear in h.
        by_h = -slope * inverse * along / len(h)
        constant = -slope * total / len(h) - by_h * mean
        of_h = torch.addr(constant.expand(h.shape), gradient, slope).addcmul_(h, by_h)
        return of_h, w * along, w * total, gamma * along + beta * total, total, None, None, None, None
