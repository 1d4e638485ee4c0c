"""Whether a model on a CUDA GPU runs the kernels of `rerank.models.triton_kernels`, and where."""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.models.dropout import SeededDropout, drop_by_operations

LAYOUT = {"dense", "LayerNorm", "dropout"}
"""The parts of a module that ends the attention or the layer of BERT, RoBERTa, ELECTRA and others of their layout."""

PROJECTIONS = ("query", "key", "value")
"""The parts of the attention of the same models that read the same vectors, in their order."""

LARGEST = 2**31
"""The kernels count the values of a tensor in 32 bits."""


@functools.cache
def kernel_error(device: torch.device) -> str:
    """Why a CUDA GPU cannot run the kernels, or "": Triton needs a C compiler, and is not on every system."""
    try:
        from rerank.models.triton_kernels import Drop

        x, keys = torch.ones(3, 96, device=device), torch.arange(3, dtype=torch.int32, device=device)
        same = torch.equal(Drop.apply(x, keys, 7, 0.5), drop_by_operations(x, keys, 7, 0.5))
    except Exception as error:  # Triton, the C compiler and the driver raise different types
        return " ".join(str(error).split())[:200] or type(error).__name__
    return "" if same else "a kernel of Triton drops other values than torch's operations"


def use_kernels(model: nn.Module, layers: bool = True) -> None:
    """A kernel does dropout.

    In the `layers` of BERT's layout another one does dropout, sum and norm, whose result is then bf16; and one product
    makes queries, keys and values.
    """
    from rerank.models.triton_kernels import Drop

    for module in model.modules():
        if isinstance(module, SeededDropout):
            module.drop = Drop.apply
        if not layers:
            continue
        projections: list[Any] = [getattr(module, name, None) for name in PROJECTIONS]
        if all(type(projection) is nn.Linear and projection.bias is not None for projection in projections):
            projections[0].forward = functools.partial(_project_all, projections)
            for place, projection in enumerate(projections[1:]):
                projection.forward = functools.partial(_take_projected, place)
        if {name for name, _ in module.named_children()} == LAYOUT and type(module.LayerNorm) is nn.LayerNorm:
            module.forward = functools.partial(_drop_add_norm, module)


def use_operations(model: nn.Module) -> None:
    """Undoes `use_kernels`."""
    for module in model.modules():
        if isinstance(module, SeededDropout):
            module.drop = drop_by_operations
        if isinstance(vars(module).get("forward"), functools.partial):
            del module.forward


def _project_all(projections: list[nn.Linear], x: Tensor) -> Tensor:
    """The forward pass of the first of these layers, which leaves with x what the others make of it."""
    weight = torch.cat([projection.weight for projection in projections])
    bias = torch.cat([projection.bias for projection in projections])
    sizes = [projection.out_features for projection in projections]
    parts: list[Tensor] = list(F.linear(x, weight, bias).split(sizes, -1))
    x.projected = parts[1:]  # type: ignore[attr-defined]
    return parts[0]


def _take_projected(place: int, x: Tensor) -> Tensor:
    """The forward pass of one of the others, which are called next, in their order."""
    projected: list[Tensor] = getattr(x, "projected", [])
    if place >= len(projected):
        raise RuntimeError("its attention projects keys or values before queries")
    if place == len(projected) - 1:
        del x.projected  # type: ignore[attr-defined]  # else x and its graph would keep each other
    return projected[place]


def _drop_add_norm(module: Any, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
    """The forward pass of a module of BERT's layout: the norm of its projection, with dropout, plus the residual."""
    from rerank.models.triton_kernels import DropAddNorm

    x, dropout, norm = module.dense(hidden_states), module.dropout, module.LayerNorm
    drops = dropout.training and dropout.p > 0
    if x.dtype != torch.bfloat16 or x.numel() >= LARGEST or (drops and not isinstance(dropout, SeededDropout)):
        out: Tensor = norm(dropout(x) + input_tensor)
        return out
    dropping = (dropout.row_keys(x), dropout.layer_key, dropout.p) if drops else (None, 0, 0.0)
    joined: Tensor = DropAddNorm.apply(x, input_tensor, norm.weight, norm.bias, *dropping, norm.eps)
    return joined
