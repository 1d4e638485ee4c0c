"""Plugs an analytic gradient into autograd."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def wants_gradient(scores: Tensor) -> bool:
    """Whether autograd needs the gradient with respect to these scores."""
    return torch.is_grad_enabled() and scores.requires_grad


def with_gradient(scores: Tensor, values: Tensor, gradient: Tensor | None) -> Tensor:
    """Makes the values, (lists,), a function of the scores, (lists, documents), whose gradient can be taken once.

    `gradient` is the derivative of each list's value, (lists, documents); None if it is not needed.
    """
    if gradient is None:
        return values
    differentiable: Tensor = _WithGradient.apply(scores, values, gradient)
    return differentiable


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return values.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None, None
