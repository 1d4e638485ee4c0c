"""How fast a CPU multiplies matrices, and linear layers that call oneDNN where it is faster than what torch calls.

torch multiplies float32 matrices with MKL, which reaches 0.5 to 0.97 of the rate of oneDNN on AMD's processors. In bf16
it calls oneDNN, but copies the bias into the result before.
"""

import contextlib
import functools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FASTER = 1.5
"""How many times as fast a CPU multiplies in bf16, if it has instructions for it (2 to 9 times)."""

SMALL = 2_000_000
"""Parameters of a model that bf16, int8 and oneDNN make no faster on a CPU."""

PROCESSOR = Path("/proc/cpuinfo")
FACTS = r"^(?:vendor_id|cpu family|model|model name|flags|Features)\s*: .*"

ROWS, COLUMNS = 128, 768  # of the matrices that are multiplied: 0.15 Gflop


@functools.cache
def bf16_gain() -> float:
    """How many times as fast as in float32 a thread of the CPU multiplies matrices in bf16; it takes about 0.1 s.

    The times are those that the thread computes, so other work on the machine does not change which is faster.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            factors = [
                (torch.ones(ROWS, COLUMNS, dtype=kind), torch.ones(COLUMNS, COLUMNS, dtype=kind))
                for kind in (torch.float32, torch.bfloat16)
            ]
            seconds = [float("inf")] * 2
            for number in range(10):  # the first one chooses kernels
                for place, pair in enumerate(factors):
                    start = time.thread_time()
                    torch.matmul(*pair)
                    seconds[place] = min(time.thread_time() - start, seconds[place])
                if number and seconds[1] > 2 * seconds[0]:  # without instructions for it
                    break
    finally:
        torch.set_num_threads(threads)
    return seconds[0] / seconds[1]


@functools.cache
def prefers_onednn() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than MKL, which torch calls: on AMD's processors."""
    return torch.backends.mkldnn.is_available() and "AuthenticAMD" in processor()


@functools.cache
def processor() -> str:
    """The lines of FACTS about the processor: maker, model, instructions; "" where there is no /proc/cpuinfo."""
    lines = PROCESSOR.read_text(encoding="utf-8") if PROCESSOR.is_file() else ""
    return "\n".join(dict.fromkeys(re.findall(FACTS, lines, re.MULTILINE)))


@functools.cache
def prefers_onednn_in_bf16() -> bool:
    """Whether the CPU has instructions for products of bf16."""
    return torch.backends.mkldnn.is_available() and not {"avx512_bf16", "amx_bf16"}.isdisjoint(processor().split())


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
        to_weight = None
        if for_weight:  # oneDNN copies its first factor to transpose it, so that is the smaller one
            wide = rows.shape[1] > inputs.shape[1]
            to_weight = multiply(inputs.t(), rows.t()).t() if wide else multiply(rows.t(), inputs.t())
            to_weight = to_weight.to(ctx.type)
        to_bias = rows.sum(0).to(ctx.type) if for_bias else None
        return multiply(gradient, weight.t()) if for_x else None, to_weight, to_bias
