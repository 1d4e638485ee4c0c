"""A loss whose gradient is computed with its value: how that gradient takes part in autograd."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def wants_gradient(scores: Tensor) -> bool:
    """Whether autograd will ask for the gradient of what is computed from these scores."""
    return torch.is_grad_enabled() and scores.requires_grad


def with_gradient(scores: Tensor, values: Tensor, gradient: Tensor | None) -> Tensor:
    """The values as a function of the scores that has the given gradient, once.

    Args:
        scores: (lists, documents); autograd continues from here.
        values: (lists,), one a list.
        gradient: (lists, documents), of each list's value in its scores; None where nobody wants it.

    Returns:
        (lists,), the values.
    """
    if gradient is None:
        return values
    known: Tensor = _Known.apply(scores, values, gradient)
    return known


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return values.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None, None
