"""The layers of `batchnorm_head` in training with dropout in front of the output, chunked in the same way.

A score is then a sum over the hidden values that are kept. The masks are computed once, a byte for each value.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rerank.models.batchnorm_head import chunks, hidden_values, with_bias
from rerank.models.dropout import SeededDropout, token_keys
from rerank.models.gpu import full_float32


def dropped_head(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: nn.BatchNorm1d,
    output: nn.Linear,
    dropout: SeededDropout,
    seeds: Tensor,
) -> Tensor:
    """`output(dropout(norm(relu(features @ weight.T + bias))))[:, 0]` in training: (documents,).

    The arguments are those of `batchnorm_head`, and `seeds`, (documents,) int64, which decide the masks.
    """
    mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
    with torch.autocast(features.device.type, enabled=False):
        inputs, layer = with_bias(features.detach().to(weight.dtype), weight, bias)
        parameters = norm.weight, norm.bias, output.weight[0], output.bias[0]
        statistics = mean, variance, norm.momentum, norm.eps
        scores: Tensor = _Dropped.apply(inputs, layer, *parameters, *statistics, dropout, token_keys(seeds, 0 * seeds))
        return scores


class _Dropped(torch.autograd.Function):
    """S = c + sum_u w_u m_u (gamma_u x_u + beta_u), x = (h - mean) inverse; m_u is 0 or 1 / (1 - p)."""

    @staticmethod
    @full_float32()
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
        dropout: SeededDropout,
        keys: Tensor,
    ) -> Tensor:
        h, mean, inverse = hidden_values(inputs, layer, running_mean, running_variance, momentum, eps)
        kept = torch.empty_like(h, dtype=torch.bool)
        slope = gamma * inverse * w
        constant = w * beta - slope * mean
        scores: list[Tensor] = []
        ctx.scale = 1 / (1 - dropout.p)
        for values, keep, of_rows in zip(chunks(h), chunks(kept), chunks(keys), strict=True):
            keep.copy_(dropout.keep(values, of_rows))
            scores.append(torch.addcmul(constant, values, slope).mul_(keep).sum(1))
        ctx.save_for_backward(inputs, h, kept, gamma, beta, w, mean, inverse)
        summed: Tensor = c + torch.cat(scores) * ctx.scale
        return summed

    @staticmethod
    @once_differentiable
    @full_float32()
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, h, kept, gamma, beta, w, mean, inverse = ctx.saved_tensors
        scaled = gradient * ctx.scale
        total, projection = torch.zeros_like(mean), torch.zeros_like(mean)  # sums over the documents of m dS, m dS h
        for values, keep, d_scores in zip(chunks(h), chunks(kept), chunks(scaled), strict=True):
            total.addmv_(keep.to(h.dtype).T, d_scores)
            projection.addmv_((values * keep).T, d_scores)
        projection = (projection - total * mean) * inverse  # of m dS x
        slope = gamma * inverse * w
        # dh of a document is slope (m dS - total / n - x projection / n), where x is linear in h.
        factor = -slope * inverse * projection / len(h)
        constant = -slope * total / len(h) - factor * mean
        d_layer = inputs.new_zeros(inputs.shape[1], h.shape[1])
        for chunk, values, keep, d_scores in zip(chunks(inputs), chunks(h), chunks(kept), chunks(scaled), strict=True):
            d_h = torch.addcmul(constant, values, factor).addcmul_(keep * d_scores[:, None], slope)
            d_layer.addmm_(chunk.T, d_h.mul_(values.sign()))  # the derivative of the ReLU: 1 or 0
        d_norm = w * projection, w * total
        return None, d_layer.T, *d_norm, gamma * projection + beta * total, gradient.sum(), *[None] * 6
