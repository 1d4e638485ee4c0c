"""Attention on a CPU in bf16 as matrix products, where the kernel of `rerank.models.cpu.attention` is not used."""

from typing import Any

import torch
from torch import Tensor

LARGEST = 2**21
"""Attention weights that are computed at a time: 4 MiB."""


def fits_products(value: Tensor) -> bool:
    """Whether (passages, heads, tokens, size) values are of this device and type, and the weights of a head fit."""
    return value.dtype == torch.bfloat16 and value.device.type == "cpu" and value.shape[-2] ** 2 <= LARGEST


def attend_by_products(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """softmax(scaling · query keyᵀ) value, each (passages, heads, tokens, size) in bf16.

    Scores and weights are rounded to bf16, and summed in float32. `scaling` is 1 / √size if it is None.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attended: Tensor = _Attention.apply(query, key, value, scale)
    return attended


class _Attention(torch.autograd.Function):
    """Attention in bf16 on a CPU, as matrix products of a few heads at a time.

    torch's kernel for CPUs (FlashAttention) multiplies bf16 numbers hardly faster than float32 ones: a passage of 512
    tokens takes twice as long in it, forward, as these products, whose weights stay in the processor's caches.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.scale = scale
        out = _empty(value)
        for place, weights in _each_block(query, key, scale):
            torch.bmm(weights, value[place], out=out[place])
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """The weights are computed again: they would take more memory than all else that a layer keeps."""
        query, key, value = ctx.saved_tensors
        to_query, to_key, to_value = map(_empty, (query, key, value))
        memory = None
        for place, weights in _each_block(query, key, ctx.scale):
            torch.bmm(weights.transpose(1, 2), gradient[place], out=to_value[place])
            memory = torch.empty_like(weights) if memory is None else memory
            to_scores = memory[: len(weights)]
            torch.bmm(gradient[place], value[place].transpose(1, 2), out=to_scores)
            torch._softmax_backward_data(to_scores, weights, -1, weights.dtype, grad_input=to_scores)
            to_scores.mul_(ctx.scale)
            torch.bmm(to_scores, key[place], out=to_query[place])
            torch.bmm(to_scores.transpose(1, 2), query[place], out=to_key[place])
        return to_query, to_key, to_value, None


def _each_block(query: Tensor, key: Tensor, scale: float) -> Any:
    """The passage and the heads of each block, and its attention weights, (heads, tokens, tokens), until the next."""
    passages, heads, tokens, _ = query.shape
    count = max(1, min(heads, LARGEST // tokens**2))
    memory = query.new_empty(count, tokens, tokens)
    for passage in range(passages):
        for first in range(0, heads, count):
            place = passage, slice(first, min(first + count, heads))
            weights = memory[: place[1].stop - first]
            torch.baddbmm(weights, query[place], key[place].transpose(1, 2), beta=0, alpha=scale, out=weights)
            yield place, torch.softmax(weights, -1, out=weights)


def _empty(like: Tensor) -> Tensor:
    """(passages, heads, tokens, size) without values, in memory token by token, as the next layer reads it."""
    passages, heads, tokens, size = like.shape
    return like.new_empty(passages, tokens, heads, size).transpose(1, 2)
