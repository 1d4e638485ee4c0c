"""Weights in bf16 for scoring on a GPU.

Under autocast every layer norm and residual sum is in float32 and is cast for the next product: a third of the bytes of
a forward pass (docs/performance.md).
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from rerank.models.heads import Float32Linear

Autocast = Callable[[], AbstractContextManager[Any]]


@contextlib.contextmanager
def scoring_precision(model: nn.Module, device: torch.device, autocast: Autocast) -> Iterator[Autocast]:
    """Within the block, weights are in bf16 on a CUDA GPU where `autocast` is to bf16; yields the context of a pass.

    The head stays in float32: see `Float32Linear`. After the block the parameters are the float32 ones, unchanged.
    """
    with autocast():
        in_bf16 = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.bfloat16
    if device.type != "cuda" or not in_bf16:
        yield autocast
        return
    with weights_in(model, torch.bfloat16):
        yield contextlib.nullcontext


@contextlib.contextmanager
def weights_in(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Within the block, the float32 parameters have copies of this type, except those of a `Float32Linear`."""
    kept = {id(p) for module in model.modules() if isinstance(module, Float32Linear) for p in module.parameters()}
    weights = [p for p in model.parameters() if p.dtype == torch.float32 and id(p) not in kept]
    originals = [weight.data for weight in weights]
    try:
        for weight, original in zip(weights, originals, strict=True):
            weight.data = original.to(dtype)
        yield
    finally:
        for weight, original in zip(weights, originals, strict=True):
            weight.data = original
