"""Dropout on a CPU in one pass, by `dropout.c`: torch's operations take one for each step of the hash."""

from typing import Any

import torch
from torch import Tensor

from rerank.models.cpu.attention import missing_kernel
from rerank.models.cpu.library import DEFINES, call
from rerank.models.dropout import ODD, SeededDropout, drop_by_operations, hashes

MULTIPLIERS = torch.tensor(ODD, dtype=torch.int32)


def use_compiled_dropout(model: torch.nn.Module) -> None:
    """Gives a model on the CPU this dropout, where kernels can be compiled."""
    if not missing_kernel(torch.float32):
        for module in model.modules():
            if isinstance(module, SeededDropout):
                module.drop = drop


def drop(x: Tensor, keys: Tensor, layer_key: int, p: float) -> Tensor:
    """`rerank.models.dropout.drop_by_operations`: the same values."""
    if x.dtype not in DEFINES:
        return drop_by_operations(x, keys, layer_key, p)
    dropped: Tensor = _Drop.apply(x, *hashes(x, keys, layer_key), p)
    return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, columns: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(rows, columns)
        ctx.p = p
        return _dropped(x, rows, columns, p)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        rows, columns = ctx.saved_tensors
        return _dropped(gradient, rows, columns, ctx.p), None, None, None


def _dropped(x: Tensor, rows: Tensor, columns: Tensor, p: float) -> Tensor:
    x, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    tensors = x, rows.expand(x.shape[:-1]).contiguous(), columns, out, MULTIPLIERS
    call("dropout", x.dtype, "drop", *tensors, x.numel() // len(columns), len(columns), int(p * 2**31), 1 / (1 - p))
    return out
