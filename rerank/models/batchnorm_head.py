"""A hidden layer with ReLU, batch norm and a linear layer with one output, taken together, some documents at a time.

Behind the ReLU all is linear in a document's hidden values h once their mean and variance are known, so that neither
the normalised values nor their gradient is ever made; and what is made of some documents is used up while it is in the
cache: on a CPU the network waits for memory more than for its products.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CPU_DOCUMENTS = 128
"""Documents that a CPU takes at a time: 512 KB for each thing that is made of 1024 units. A GPU takes all."""


def hidden_scores(features: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm1d, output: nn.Linear) -> Tensor:
    """`output(norm(relu(features @ weight.T + bias)))[:, 0]`: (documents,), in the type of the parameters.

    In training with the mean and variance of the hidden values, whose running values it updates; else with the running
    ones. Autocast changes nothing: bf16 would let scores fall on a dozen values.

    Args:
        features: (documents, features), two documents or more in training; there is no gradient in them.
        weight: (units, features) of the hidden layer.
        bias: (units,).
        norm: of the units.
        output: from the units to one.
    """
    mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
    with torch.autocast(features.device.type, enabled=False):
        features = features.detach().to(weight.dtype)
        # A feature that is 1 everywhere makes the bias a weight: one product less, there and back.
        inputs = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        layer = torch.cat([weight, bias[:, None]], dim=1)
        parameters = norm.weight, norm.bias, output.weight[0], output.bias[0]
        if norm.training:
            scores: Tensor = _InTraining.apply(inputs, layer, *parameters, mean, variance, norm.momentum, norm.eps)
            return scores
        slope, constant = _line(*parameters, mean, (variance + norm.eps).rsqrt())
        return torch.cat([torch.relu(part @ layer.T) @ slope + constant for part in _parts(inputs)])


def _parts(rows: Tensor) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = rows.split(CPU_DOCUMENTS if rows.device.type == "cpu" else max(1, len(rows)))
    return parts


def _line(gamma: Tensor, beta: Tensor, w: Tensor, c: Tensor, mean: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """(units,) and (): a score is the product of h with the first, plus the second."""
    slope = gamma * inverse * w
    return slope, c + beta @ w - mean @ slope


class _InTraining(torch.autograd.Function):
    """S = c + sum_u w_u (gamma_u x_u + beta_u), x = (h - mean) inverse, with the mean and variance of h itself."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        layer: Tensor,
        gamma: Tensor,
        beta: Tensor,
        w: Tensor,
        c: Tensor,
        running_mean: Tensor,
        running_variance: Tensor,
        momentum: float,
        eps: float,
    ) -> Tensor:
        h = inputs.new_empty(len(inputs), len(layer))
        for part, values in zip(_parts(inputs), _parts(h), strict=True):
            torch.mm(part, layer.T, out=values).relu_()
        mean, variance = torch.ops.aten.batch_norm_update_stats(h, running_mean, running_variance, momentum)
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(inputs, h, gamma, beta, w, mean, inverse)
        slope, constant = _line(gamma, beta, w, c, mean, inverse)
        return h @ slope + constant

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, h, gamma, beta, w, mean, inverse = ctx.saved_tensors
        total = gradient.sum()
        along = (gradient @ h - total * mean) * inverse  # sum over the documents of dS x
        slope = gamma * inverse * w
        # Of a document: slope (dS - total / n - x along / n), where x is linear in h.
        by_h = -slope * inverse * along / len(h)
        constant = -slope * total / len(h) - by_h * mean
        of_layer = inputs.new_zeros(inputs.shape[1], h.shape[1])
        for part, values, of_scores in zip(_parts(inputs), _parts(h), _parts(gradient), strict=True):
            of_h = torch.addcmul(constant, values, by_h).addr_(of_scores, slope)
            of_layer.addmm_(part.T, of_h.mul_(values.sign()))  # the sign of what the ReLU let through is 1, else 0
        of_norm = w * along, w * total
        return None, of_layer.T, *of_norm, gamma * along + beta * total, total, None, None, None, None
