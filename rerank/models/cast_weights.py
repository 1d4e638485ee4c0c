"""Copies of the linear layers' weights for scoring under autocast, which else casts them in every forward pass."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn


@contextlib.contextmanager
def cast_weights(
    model: object, device: torch.device, autocast: Callable[[], AbstractContextManager[Any]]
) -> Iterator[None]:
    """Within the block, the weights of linear layers are of the type that `autocast` casts them to.

    Scores are the same bits as without. Only the weights that autocast would cast are copied: a head in float32
    (`Float32Linear`) and a weight that is an embedding table too keep theirs. After the block the parameters are the
    float32 ones again. A `model` that is no module of torch, as an exported one, has no such weights; one that computes
    in float32 whatever the precision keeps them.
    """
    with autocast():
        casts = torch.is_autocast_enabled(device.type)
        dtype = torch.get_autocast_dtype(device.type)
    casts = casts and not getattr(model, "in_float32", False)
    weights = _cast_by_autocast(model) if casts and isinstance(model, nn.Module) else []
    originals = [weight.data for weight in weights]
    try:
        for weight, original in zip(weights, originals, strict=True):
            weight.data = original.to(dtype)
        yield
    finally:
        for weight, original in zip(weights, originals, strict=True):
            weight.data = original


def _cast_by_autocast(model: nn.Module) -> list[nn.Parameter]:
    """The float32 parameters that nn.Linear alone has."""
    linear: dict[int, nn.Parameter] = {}
    others = set()
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if type(module) is nn.Linear and parameter.dtype == torch.float32:
                linear[id(parameter)] = parameter
            else:
                others.add(id(parameter))
    return [parameter for key, parameter in linear.items() if key not in others]
