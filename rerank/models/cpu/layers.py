"""Dropout, the norm of its sum with a residual, and transposes, in one pass each on a CPU, by `layers.c`.

The first two stand for the kernels of `rerank.models.triton_kernels`: torch's operations take a pass for each step of
the hash, for sum, norm and cast.
"""

from typing import Any

import torch
from torch import Tensor

from rerank.models.cpu.library import DEFINES, call
from rerank.models.dropout import ODD, drop_by_operations, hashes

MULTIPLIERS = torch.tensor(ODD, dtype=torch.int32)

ROWS = 64
"""As in `layers.c`."""


class Drop(torch.autograd.Function):
    """`rerank.models.dropout.drop_by_operations`: the same values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keys: Tensor, layer_key: int, p: float) -> Tensor:
        ctx.save_for_backward(keys)
        ctx.settings = layer_key, p
        return _dropped(x, keys, layer_key, p)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _dropped(gradient, *ctx.saved_tensors, *ctx.settings), None, None, None


def _dropped(x: Tensor, keys: Tensor, layer_key: int, p: float) -> Tensor:
    if x.dtype not in DEFINES:
        return drop_by_operations(x, keys, layer_key, p)
    x, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    call("layers", x.dtype, "drop", x, out, *_shape(x), *_dropping(x, keys, layer_key, p))
    return out


class DropAddNorm(torch.autograd.Function):
    """The layer norm of dropout(x) + residual in x's type, with sums in float32; `keys` is None without dropout."""

    TYPES = (torch.bfloat16,)
    """Of x, for which it is faster than torch's operations; it takes float32 too."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, keys: Tensor | None,
        layer_key: int, p: float, epsilon: float,
    ) -> Tensor:  # fmt: skip
        """The result is (…, columns), as x and residual; `keys`, `layer_key` and p are as in `drop_by_operations`."""
        ctx.types = residual.dtype, weight.dtype, bias.dtype
        x, residual, weight, bias = x.contiguous(), residual.to(x.dtype).contiguous(), weight.float(), bias.float()
        dropping = _dropping(x, keys, layer_key, p)
        out, (means, spreads) = torch.empty_like(x), torch.empty(2, _shape(x)[0])
        call(
            "layers", x.dtype, "normalise",
            x, residual, weight, bias, out, means, spreads, float(epsilon), *_shape(x), *dropping,
        )  # fmt: skip
        ctx.save_for_backward(x, residual, weight, means, spreads)
        ctx.dropping = dropping
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, residual, *others = ctx.saved_tensors
        rows, columns = _shape(x)
        to_x, to_residual = torch.empty_like(x), torch.empty_like(residual)
        to_weight, to_bias = torch.empty(2, -(-rows // ROWS), columns)
        call(
            "layers", x.dtype, "normalise_backward",
            gradient.contiguous(), x, residual, *others, to_x, to_residual, to_weight, to_bias,
            rows, columns, *ctx.dropping,
        )  # fmt: skip
        found = to_residual, to_weight.sum(0), to_bias.sum(0)
        return to_x, *(one.to(dtype) for one, dtype in zip(found, ctx.types, strict=True)), None, None, None, None


def transposed(x: Tensor) -> Tensor:
    """A copy of the transpose of a matrix in float32, by all threads; torch copies by one."""
    x, out = x.contiguous(), torch.empty(x.shape[1], x.shape[0])
    call("layers", x.dtype, "transpose", x, out, *x.shape)
    return out


def _shape(x: Tensor) -> tuple[int, int]:
    """Rows and columns."""
    return x.shape[:-1].numel(), x.shape[-1]


def _dropping(x: Tensor, keys: Tensor | None, layer_key: int, p: float) -> tuple[Any, ...]:
    """The last arguments of the functions in `layers.c`; no addresses if nothing is dropped."""
    if keys is None:
        return 0, 0, 0, 0, 1.0
    rows, columns = hashes(x, keys, layer_key)
    return rows.expand(x.shape[:-1]).contiguous(), columns, MULTIPLIERS, int(p * 2**31), 1 / (1 - p)
