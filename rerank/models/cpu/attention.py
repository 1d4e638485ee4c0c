"""Attention of packed passages on a CPU by `attention.c`.

torch's kernels for CPUs call a library for the products of each head, whose factors are too small for it: they reach
half of its rate. Here one call computes all heads of all passages, and keeps the weights in the processor's caches.
"""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.models.cpu.library import DEFINES, call, library_of, load
from rerank.models.processor import processor
from rerank.utils.errors import UserError
from rerank.utils.progress import log

SIZES = 32
"""The size of a head is a multiple of this: that of MiniLM, and half of that of BERT."""

AGREES = {torch.float32: 1e-5, torch.bfloat16: 0.02}
"""The largest difference from torch's attention that rounding explains, for random values of variance 1."""


def fits(query: Tensor, value: Tensor) -> bool:
    """Whether `attend_compiled` takes queries and values of this device, type and size, (…, size)."""
    size = value.shape[-1]
    known = value.device.type == "cpu" and value.dtype in DEFINES and query.shape[-1] == size and size % SIZES == 0
    return known and not torch.compiler.is_compiling() and not missing_kernel(value.dtype)


def attend_compiled(
    queries: Tensor, keys: Tensor, values: Tensor, query_starts: Tensor, starts: Tensor, longest: int, scale: float,
    window: tuple[int, int] = (-1, -1),
) -> Tensor:  # fmt: skip
    """softmax(scale · queries keysᵀ) values within each passage: (queries, heads, size), as `queries`.

    Queries and tokens of passage p are those from the p-th to the next of `query_starts` and `starts`, int32; queries
    are those of all tokens, or of the first ones. `longest` is the tokens of the longest passage. A token attends to
    those of the `window`: so many before and after itself, -1 for all. Products of bf16 numbers are summed in float32.
    The result does not depend on the threads, nor on the other passages.
    """
    settings = longest, *(longest if side < 0 else side for side in window)
    attended: Tensor = _Attention.apply(queries, keys, values, query_starts, starts, settings, scale)
    return attended


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, query_starts: Tensor, starts: Tensor,
        settings: tuple[int, int, int], scale: float,
    ) -> Tensor:  # fmt: skip
        query, key, value = map(_by_token, (query, key, value))
        out, sums = torch.empty(query.shape, dtype=query.dtype), torch.empty(query.shape[1], query.shape[0])
        ctx.save_for_backward(query, key, value, out, sums, query_starts, starts)
        ctx.settings, ctx.scale = settings, scale
        _call("attend", (query, key, value, out, sums, query_starts, starts), settings, scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, sums, query_starts, starts = ctx.saved_tensors
        to_inputs = [torch.empty(x.shape, dtype=x.dtype) for x in (query, key, value)]
        tensors = (query, key, value, out, sums, gradient.contiguous(), *to_inputs, query_starts, starts)
        _call("attend_backward", tensors, ctx.settings, ctx.scale)
        return (*to_inputs, None, None, None, None)


def _by_token(x: Tensor) -> Tensor:
    """(tokens, heads, size) as the kernel reads it: the heads of a token side by side, and tokens at whole words."""
    ready = x.stride()[1:] == (x.shape[2], 1) and x.stride(0) % 2 == 0
    return x if ready else x.contiguous()


def _call(function: str, tensors: tuple[Tensor, ...], settings: tuple[int, int, int], scale: float) -> None:
    query, key, value = tensors[:3]
    (longest, *window), steps = settings, (x.stride(0) for x in (query, key, value))
    shape = torch.tensor([len(tensors[-1]) - 1, *query.shape[1:], longest, *steps, *window])
    scratch = torch.empty(call("attention", query.dtype, "scratch_words", shape))
    call("attention", query.dtype, function, *tensors, shape, scale, scratch)


@functools.cache
def missing_kernel(dtype: torch.dtype) -> str:
    """Why the kernel for a type cannot be used on this machine; "" if it can. What is unexpected is logged, once.

    It is compared with torch's attention when it is compiled, and a file beside it says that they agree.
    In bf16 it needs the instructions AVX512_BF16, and processors with AMX multiply faster by torch's products.
    """
    if dtype == torch.bfloat16:
        flags = processor().split()
        if "avx512_bf16" not in flags or "amx_bf16" in flags:
            return "its products in bf16 need AVX512_BF16, and no AMX"
    try:
        load("attention", dtype)
        agrees, difference = library_of("attention", dtype).with_suffix(".agrees"), 0.0
        if not agrees.is_file() and (difference := _difference(dtype)) <= AGREES[dtype]:
            agrees.touch()
        reason = "" if difference <= AGREES[dtype] else f"its values differ from torch's by {difference:.1g}"
    except (OSError, UserError) as error:
        reason = str(error)
    if reason:
        log.info(f"attention is computed by torch, which takes longer: {reason}")
    return reason


@torch.inference_mode(False)
@torch.enable_grad()
@torch.autocast("cpu", enabled=False)
def _difference(dtype: torch.dtype) -> float:
    """The largest relative difference from torch's attention, of values and gradients, for passages of 40 and 3."""
    starts, random = torch.tensor([0, 40, 43], dtype=torch.int32), torch.Generator().manual_seed(0)
    inputs = [torch.randn(43, 2, SIZES, generator=random).to(dtype).requires_grad_() for _ in range(3)]
    found = attend_compiled(inputs[0], inputs[1], inputs[2], starts, starts, 40, 0.2)
    expected = torch.empty(0, 2, SIZES)
    for part in zip(*(x.float().split((40, 3)) for x in inputs), strict=True):
        query, key, value = (x.transpose(0, 1) for x in part)
        one = F.scaled_dot_product_attention(query, key, value, scale=0.2)
        expected = torch.cat([expected, one.transpose(0, 1)])
    pairs = [(found, expected)]
    pairs += zip(*(torch.autograd.grad(x.float().square().sum(), inputs) for x in (found, expected)), strict=True)
    return max(float(((one.float() - other.float()).abs().max() / other.abs().max()).detach()) for one, other in pairs)
