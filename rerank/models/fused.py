"""Where models run our kernels, those of `rerank.models.triton_kernels` or, on a CPU, of `rerank.models.cpu.layers`."""

import functools
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.models.cpu.attention import missing_kernel
from rerank.models.dropout import SeededDropout, drop_by_operations
from rerank.models.packing import in_mode

LAYOUT = {"dense", "LayerNorm", "dropout"}
"""The parts of a module that ends the attention or the layer of BERT, RoBERTa, ELECTRA and others of their layout."""

PROJECTIONS = ("query", "key", "value")
"""The parts of the attention of the same models that read the same vectors, in their order."""

LARGEST = 2**31
"""The kernels count the values of a tensor in 32 bits."""


@functools.cache
def kernel_error(device: torch.device) -> str:
    """Why a device cannot run the kernels, or "": they need a C compiler, and Triton is not on every system."""
    if device.type == "cpu" and (reason := missing_kernel(torch.float32)):
        return reason
    try:
        drop, x = _kernels(device).Drop, torch.ones(3, 96, device=device)
        keys = torch.arange(3, dtype=torch.int32, device=device)
        same = torch.equal(drop.apply(x, keys, 7, 0.5), drop_by_operations(x, keys, 7, 0.5))
    except Exception as error:  # Triton, the C compiler and the driver raise different types
        return " ".join(str(error).split())[:200] or type(error).__name__
    return "" if same else "a kernel drops other values than torch's operations"


def _kernels(device: torch.device) -> Any:
    """The module with the functions Drop and DropAddNorm."""
    return import_module("rerank.models.triton_kernels" if device.type == "cuda" else "rerank.models.cpu.layers")


def use_kernels(model: nn.Module, device: torch.device, layers: bool = True) -> None:
    """A kernel does dropout on a device of the type "cuda" or "cpu".

    In bf16, in the `layers` of BERT's layout, another one does dropout, sum and norm, whose result is then bf16; and on
    a GPU one product makes queries, keys and values.
    """
    kernels = _kernels(device)
    for module in model.modules():
        if isinstance(module, SeededDropout):
            module.drop = kernels.Drop.apply
        if not layers:
            continue
        projections: list[Any] = [getattr(module, name, None) for name in PROJECTIONS]
        usual = all(type(projection) is nn.Linear and projection.bias is not None for projection in projections)
        if usual and device.type == "cuda":
            projections[0].forward = functools.partial(_project_all, projections)
            for place, projection in enumerate(projections[1:]):
                projection.forward = functools.partial(_take_projected, place)
        if _ends_as_bert(module):
            module.forward = functools.partial(_drop_add_norm, module, kernels.DropAddNorm)


@torch.no_grad()
def _ends_as_bert(module: Any) -> bool:
    """Whether a module has the parts of LAYOUT, and returns the norm of the projection plus the residual."""
    if {name for name, _ in module.named_children()} != LAYOUT or type(module.LayerNorm) is not nn.LayerNorm:
        return False
    weight: Tensor = module.dense.weight
    x, residual = (
        torch.arange(size, dtype=weight.dtype, device=weight.device)[None].cos() for size in weight.t().shape
    )
    with in_mode(module, training=False):
        return torch.allclose(module(x, residual), module.LayerNorm(module.dense(x) + residual), atol=1e-3)


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


def _drop_add_norm(module: Any, function: Any, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
    """The forward pass of a module of BERT's layout: the norm of its projection, with dropout, plus the residual."""
    x, dropout, norm = module.dense(hidden_states), module.dropout, module.LayerNorm
    drops = dropout.training and dropout.p > 0
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    other_dropout = drops and not isinstance(dropout, SeededDropout)
    if x.dtype not in function.TYPES or x.numel() >= LARGEST or traced or other_dropout:
        out: Tensor = norm(dropout(x) + input_tensor)
        return out
    dropping = (dropout.row_keys(x), dropout.layer_key, dropout.p) if drops else (None, 0, 0.0)
    joined: Tensor = function.apply(x, input_tensor, norm.weight, norm.bias, *dropping, norm.eps)
    return joined
