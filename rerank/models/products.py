"""How fast a CPU multiplies matrices, and float32 products by oneDNN where it is faster than the library of torch.

torch multiplies float32 matrices with MKL, which reaches half the rate of oneDNN on AMD's processors with AVX-512.
"""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

FASTER = 1.5
"""How many times as fast a CPU multiplies in bf16, if it has instructions for it (2 to 9 times), or with oneDNN."""

SMALL = 2_000_000
"""Parameters of a model that bf16, int8 and oneDNN make no faster on a CPU."""

ROWS, COLUMNS = 128, 768  # of the matrices that are multiplied: 0.15 Gflop


@functools.cache
def bf16_gain() -> float:
    """How many times as fast as in float32 a thread of the CPU multiplies matrices in bf16; it takes about 0.1 s."""
    return _gain(torch.matmul, torch.bfloat16)


@functools.cache
def onednn_gain() -> float:
    """How many times as fast as torch by itself oneDNN multiplies float32 matrices; 0 if this torch is without it."""
    return _gain(multiply, torch.float32) if torch.backends.mkldnn.is_available() else 0.0


def _gain(multiply: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> float:
    """How many times as fast as torch's product in float32 another one is.

    The times are those that the thread computes, so other work on the machine does not change which is faster.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            factors = [
                (product, torch.ones(ROWS, COLUMNS, dtype=kind), torch.ones(COLUMNS, COLUMNS, dtype=kind))
                for product, kind in ((torch.matmul, torch.float32), (multiply, dtype))
            ]
            seconds = [float("inf")] * 2
            for number in range(10):  # the first one chooses kernels
                for place, (product, rows, columns) in enumerate(factors):
                    start = time.thread_time()
                    product(rows, columns)
                    seconds[place] = min(time.thread_time() - start, seconds[place])
                if number and seconds[1] > 2 * seconds[0]:  # without instructions for it
                    break
    finally:
        torch.set_num_threads(threads)
    return seconds[0] / seconds[1]


def prefers_onednn() -> bool:
    """Whether oneDNN multiplies float32 matrices faster; not in one of several processes, which could disagree."""
    return "LOCAL_RANK" not in os.environ and onednn_gain() >= FASTER


def take_faster_products(model: nn.Module) -> None:
    """Makes the linear layers of a model in float32 on the CPU multiply with oneDNN if it gains.

    A model that is SMALL, and other types than float32, keep the products of torch.
    """
    if sum(weight.numel() for weight in model.parameters()) >= SMALL and prefers_onednn():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.forward = functools.partial(_linear, module)  # type: ignore[method-assign]


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The output of a layer, (…, outputs), of x, (…, inputs)."""
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if traced or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu") or x.device.type != "cpu":
        return nn.Linear.forward(layer, x)
    product: Tensor = _Product.apply(x, layer.weight, layer.bias)
    return product


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product x weightᵀ + bias."""
    if not (weight.is_contiguous() or weight.t().is_contiguous()):  # for which oneDNN takes a thousand times as long
        weight = weight.contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        rows = gradient.flatten(0, -2)
        return (
            multiply(gradient, weight.t()) if for_x else None,
            multiply(rows.t(), x.flatten(0, -2).t()) if for_weight else None,
            rows.sum(0) if for_bias else None,
        )
