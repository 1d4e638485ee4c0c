"""ReLU layer, batch norm and linear output fused into one chunked operation.

After the ReLU, a score is a linear function of a document's hidden values h, given their mean and variance. Neither the
normalised values nor their gradient is materialised, and the documents are processed in chunks that stay in the cache:
on a CPU the network is bound by memory bandwidth.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rerank.models.gpu import full_float32

CPU_DOCUMENTS = 128
"""Documents of a chunk on a CPU: 512 KB for each intermediate result of 1024 units. A GPU has one chunk."""


@full_float32()
def batchnorm_head(features: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm1d, output: nn.Linear) -> Tensor:
    """`output(norm(relu(features @ weight.T + bias)))[:, 0]`: (documents,), in the type of the parameters.

    Training uses the mean and variance of the hidden values and updates the running ones; evaluation uses the running
    ones. Autocast is disabled: in bf16 all scores would take a dozen values.

    Args:
        features: (documents, features), two documents or more in training; they get no gradient.
        weight: (units, features), of the hidden layer.
        bias: (units,), of the hidden layer.
        norm: batch norm of the units.
        output: linear layer from the units to one output.
    """
    with torch.autocast(features.device.type, enabled=False):
        features = features.detach().to(weight.dtype)
        # The bias is one more weight: one operation less, forward and backward.
        inputs = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        layer = torch.cat([weight, bias[:, None]], dim=1)
        parameters = norm.weight, norm.bias, output.weight[0], output.bias[0]
        if norm.training:
            scores: Tensor = _Scores.apply(inputs, layer, *parameters, norm)
            return scores
        mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        slope, constant = _slope_and_constant(*parameters, mean, (variance + norm.eps).rsqrt())
        return torch.cat([torch.relu(chunk @ layer.T) @ slope + constant for chunk in _chunks(inputs)])


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    """The rows of CPU_DOCUMENTS documents each; all of them on a GPU."""
    parts: tuple[Tensor, ...] = rows.split(CPU_DOCUMENTS if rows.device.type == "cpu" else max(1, len(rows)))
    return parts


def _slope_and_constant(
    gamma: Tensor, beta: Tensor, w: Tensor, c: Tensor, mean: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """The slope, (units,), and the constant, (), of a score as a linear function of h."""
    slope = gamma * inverse * w
    return slope, c + beta @ w - mean @ slope


class _Scores(torch.autograd.Function):
    """S = c + sum_u w_u (gamma_u x_u + beta_u), x = (h - mean) inverse, with the mean and variance of h itself."""

    @staticmethod
    @full_float32()
    def forward(
        ctx: Any, inputs: Tensor, layer: Tensor, gamma: Tensor, beta: Tensor, w: Tensor, c: Tensor, norm: nn.BatchNorm1d
    ) -> Tensor:
        h = inputs.new_empty(len(inputs), len(layer))
        for chunk, values in zip(_chunks(inputs), _chunks(h), strict=True):
            torch.mm(chunk, layer.T, out=values).relu_()
        running = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        mean, variance = torch.ops.aten.batch_norm_update_stats(h, *running, norm.momentum)
        inverse = (variance + norm.eps).rsqrt()
        ctx.save_for_backward(inputs, h, gamma, beta, w, mean, inverse)
        slope, constant = _slope_and_constant(gamma, beta, w, c, mean, inverse)
        return h @ slope + constant

    @staticmethod
    @once_differentiable
    @full_float32()
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, h, gamma, beta, w, mean, inverse = ctx.saved_tensors
        # Sums over the documents of dS, which is `total`, and of dS x.
        total = gradient.sum()
        projection = (gradient @ h - total * mean) * inverse
        slope = gamma * inverse * w
        # dh of a document is slope (dS - total / n - x projection / n), where x is linear in h.
        factor = -slope * inverse * projection / len(h)
        constant = -slope * total / len(h) - factor * mean
        d_layer = inputs.new_zeros(inputs.shape[1], h.shape[1])
        for chunk, values, d_scores in zip(_chunks(inputs), _chunks(h), _chunks(gradient), strict=True):
            d_h = torch.addcmul(constant, values, factor).addr_(d_scores, slope)
            d_layer.addmm_(chunk.T, d_h.mul_(values.sign()))  # the derivative of the ReLU: 1 or 0
        d_norm = w * projection, w * total
        return None, d_layer.T, *d_norm, gamma * projection + beta * total, gradient.sum(), None
