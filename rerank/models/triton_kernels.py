"""Triton kernels for CUDA GPUs: dropout by hash, and the sum of a residual that is normalised afterwards.

torch's own operations write each step of the hash of `rerank.models.dropout` to the GPU's memory, and each of dropout,
sum, layer norm and cast. Here each value is read and written once. No mask is kept: the backward pass hashes again.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rerank.models.dropout import ODD

ODD_0, ODD_1, ODD_2 = map(tl.constexpr, ODD)

BLOCK = 1024
"""Values of a program of `Drop`."""

PROGRAMS = 1024
"""Programs of the backward pass of `DropAddNorm`: each sums the gradients of weight and bias over its rows."""


@triton.jit
def _hash(bits):  # type: ignore[no-untyped-def]
    bits = bits * ODD_0
    bits = (bits ^ (bits >> 15)) * ODD_1
    return bits ^ (bits >> 12)


@triton.jit
def _keeps(key, column, least):  # type: ignore[no-untyped-def]
    """Whether values stay: `key` is that of the row plus that of the layer."""
    return _hash(_hash(key) + _hash(column * ODD_2)) >= least


@triton.jit
def _drop(  # type: ignore[no-untyped-def]
    x, keys, out, values, columns, layer_key, least, scale, block: tl.constexpr
):  # fmt: skip
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < values
    rows = places // columns
    key = tl.load(keys + rows, mask=inside, other=0) + layer_key
    keep = _keeps(key, places - rows * columns, least)
    value = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + places, tl.where(keep, value * scale, 0.0).to(out.dtype.element_ty), mask=inside)


class Drop(torch.autograd.Function):
    """`rerank.models.dropout.drop_by_operations`: the same values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keys: Tensor, layer_key: int, p: float) -> Tensor:
        keys = keys.contiguous()
        ctx.save_for_backward(keys)
        ctx.settings = layer_key, int(p * 2**31), 1 / (1 - p)
        return _dropped(x.contiguous(), keys, *ctx.settings)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _dropped(gradient.contiguous(), *ctx.saved_tensors, *ctx.settings), None, None, None


def _dropped(x: Tensor, keys: Tensor, layer_key: int, least: int, scale: float) -> Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    with torch.cuda.device_of(x):  # Triton would take the current device
        _drop[grid](x, keys, out, x.numel(), x.shape[-1], layer_key, least, scale, block=BLOCK)
    return out


@triton.jit
def _normalise(  # type: ignore[no-untyped-def]
    x, residual, keys, weight, bias, out, means, spreads, columns, layer_key, least, scale, epsilon,
    drops: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < columns
    total = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    if drops:
        keep = _keeps(tl.load(keys + row) + layer_key, column, least)
        total = tl.where(keep, total * scale, 0.0)
    total += tl.load(residual + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(total) / columns
    centred = tl.where(inside, total - mean, 0.0)
    spread = tl.rsqrt(tl.sum(centred * centred) / columns + epsilon)
    tl.store(means + row, mean)
    tl.store(spreads + row, spread)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    added = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    found = centred * spread * factor + added
    tl.store(out + row * columns + column, found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _normalise_backward(  # type: ignore[no-untyped-def]
    gradient, x, residual, keys, weight, means, spreads, to_x, to_residual, to_weight, to_bias,
    rows, columns, layer_key, least, scale,
    drops: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, block)
    inside = column < columns
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    of_weight = tl.zeros((block,), tl.float32)
    of_bias = tl.zeros((block,), tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        places = row * columns + column
        total = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
        if drops:
            keep = _keeps(tl.load(keys + row) + layer_key, column, least)
            total = tl.where(keep, total * scale, 0.0)
        total += tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
        spread = tl.load(spreads + row)
        normal = tl.where(inside, (total - tl.load(means + row)) * spread, 0.0)
        given = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        of_weight += given * normal
        of_bias += given
        weighted = given * factor
        shared = tl.sum(weighted) / columns
        along = tl.sum(weighted * normal) / columns
        found = (weighted - shared - along * normal) * spread
        tl.store(to_residual + places, found.to(to_residual.dtype.element_ty), mask=inside)
        if drops:
            found = tl.where(keep, found * scale, 0.0)
        tl.store(to_x + places, found.to(to_x.dtype.element_ty), mask=inside)
    tl.store(to_weight + tl.program_id(0) * columns + column, of_weight, mask=inside)
    tl.store(to_bias + tl.program_id(0) * columns + column, of_bias, mask=inside)


class DropAddNorm(torch.autograd.Function):
    """The layer norm of dropout(x) + residual in x's type, with sums in float32; `keys` is None without dropout."""

    TYPES = (torch.bfloat16,)
    """Of x, for which it is faster than torch's operations."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, keys: Tensor | None,
        layer_key: int, p: float, epsilon: float,
    ) -> Tensor:  # fmt: skip
        """The result is (…, columns), as x and residual; `keys`, `layer_key` and p are as in `drop_by_operations`."""
        x, residual = x.contiguous(), residual.contiguous()
        columns, rows = x.shape[-1], x.shape[:-1].numel()
        out, keys = torch.empty_like(x), None if keys is None else keys.contiguous()
        means, spreads = torch.empty(2, rows, device=x.device).unbind()
        ctx.save_for_backward(x, residual, weight, means, spreads, keys)
        ctx.constants = columns, layer_key, int(p * 2**31), 1 / (1 - p)
        ctx.flags = {"drops": keys is not None, "block": triton.next_power_of_2(columns)}
        given = x if keys is None else keys
        with torch.cuda.device_of(x):
            _normalise[(rows,)](
                x, residual, given, weight, bias, out, means, spreads, *ctx.constants, epsilon, **ctx.flags
            )
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, residual, weight, means, spreads, keys = ctx.saved_tensors
        rows, columns, programs = len(means), x.shape[-1], min(PROGRAMS, len(means))
        to_x, to_residual = torch.empty_like(x), torch.empty_like(residual)
        to_weight, to_bias = torch.empty(2, programs, columns, device=x.device).unbind()
        _normalise_backward[(programs,)](
            gradient.contiguous(), x, residual, x if keys is None else keys, weight, means, spreads,
            to_x, to_residual, to_weight, to_bias, rows, *ctx.constants, **ctx.flags,
        )  # fmt: skip
        return to_x, to_residual, to_weight.sum(0), to_bias.sum(0), None, None, None, None
