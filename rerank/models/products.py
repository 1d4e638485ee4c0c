"""Linear layers that call oneDNN where it is faster than what torch calls on a CPU.

torch multiplies float32 matrices with MKL, which reaches 0.5 to 0.97 of the rate of oneDNN on AMD's processors. In bf16
it calls oneDNN, but copies the bias into the result before.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from rerank.models.cpu.attention import missing_kernel
from rerank.models.cpu.layers import transposed
from rerank.models.processor import prefers_onednn, prefers_onednn_for_gradients, prefers_onednn_in_bf16

SMALL = 2_000_000
"""Parameters of a model that bf16, int8 and oneDNN make no faster on a CPU."""


def take_faster_products(model: nn.Module) -> None:
    """Makes the linear layers of a model on the CPU call oneDNN in bf16, and in float32 where it is faster.

    A model that is SMALL, and other types, keep the products of torch.
    """
    if sum(weight.numel() for weight in model.parameters()) >= SMALL:
        for module in model.modules():
            if type(module) is nn.Linear:
                module.forward = functools.partial(_linear, module)  # type: ignore[method-assign]


class _Casts(threading.local):
    """Parameters in the type of autocast, while a thread is in a block of `autocast_on_cpu`; `depth` counts blocks."""

    depth = 0

    def __init__(self) -> None:
        self.kept: dict[Tensor, Tensor] = {}


_casts = _Casts()


@contextlib.contextmanager
def autocast_on_cpu(dtype: torch.dtype) -> Iterator[None]:
    """torch.autocast; layers with `take_faster_products` that need no gradient cast weights once in the outer block."""
    _casts.depth += 1
    try:
        with torch.autocast("cpu", dtype):
            yield
    finally:
        _casts.depth -= 1
        if not _casts.depth:
            _casts.kept.clear()


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The output of a layer, (…, outputs), of x, (…, inputs)."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    is_faster = {torch.float32: prefers_onednn, torch.bfloat16: prefers_onednn_in_bf16}.get(dtype)
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if traced or x.device.type != "cpu" or is_faster is None or not is_faster():
        return nn.Linear.forward(layer, x)
    if not torch.is_grad_enabled():
        return multiply(x.to(dtype), _cast(layer.weight, dtype), _cast(layer.bias, dtype))
    product: Tensor = _Product.apply(x.to(dtype), layer.weight, layer.bias)
    return product


def _cast(parameter: Tensor | None, dtype: torch.dtype) -> Any:
    """A parameter in a type, which is kept until the end of the thread's block of `autocast_on_cpu`."""
    if parameter is None or parameter.dtype == dtype:
        return parameter
    if not _casts.depth:
        return parameter.to(dtype)
    if parameter not in _casts.kept:
        _casts.kept[parameter] = parameter.to(dtype)
    return _casts.kept[parameter]


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product x weightᵀ + bias."""
    if x.dtype == torch.bfloat16 and bias is None:  # torch calls oneDNN with factors in any order
        return x @ weight.t()
    if not (weight.is_contiguous() or weight.t().is_contiguous()):  # for which oneDNN takes a thousand times as long
        weight = weight.contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


class _Product(torch.autograd.Function):
    """The product of x with a weight and a bias, which are cast to its type."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.type = weight.dtype
        weight = weight.to(x.dtype)
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        rows, inputs = gradient.flatten(0, -2), x.flatten(0, -2)
        by_onednn = x.dtype == torch.float32 and prefers_onednn_for_gradients()
        to_x = to_weight = None
        if for_x:
            to_x = multiply(gradient, weight.t()) if by_onednn else gradient @ weight
        if for_weight:
            to_weight = (_multiply_transpose(rows, inputs) if by_onednn else rows.t() @ inputs).to(ctx.type)
        return to_x, to_weight, rows.sum(0).to(ctx.type) if for_bias else None


def _multiply_transpose(rows: Tensor, inputs: Tensor) -> Tensor:
    """The product rowsᵀ inputs in float32. oneDNN needs a copy of a transpose, and the smaller factor is copied."""
    if rows.shape[1] > inputs.shape[1]:
        return _multiply_transpose(inputs, rows).t()
    return multiply(rows.t() if missing_kernel(rows.dtype) else transposed(rows), inputs.t())
